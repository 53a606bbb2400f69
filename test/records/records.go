// Package records has a guest write records to its disks, and compares what the disks hold later with
// what the guest flushed.
//
// It owns the records and the guest's program. How a guest is reached, and what is killed while it
// writes, is each test's matter.
package records

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
)

// A disk has room for Most records of Bytes each.
const (
	Bytes = 4 << 10
	Most  = 2 << 10
	// DiskBytes is the size of a disk of records.
	DiskBytes = Bytes * Most
)

// Program is for guest.TinyWithVirtiofs: it writes to the disks vdb and vdc and to the virtiofs share
// "share". Its input begins with a line that says what to do up to which record.
const Program = `#!/bin/sh
export PATH=/bin
set -e
read -r action n
case $action in
mount) mkdir -p /share; mount -t virtiofs share /share ;;
write)
	cat >/run/record
	for disk in vdb vdc; do dd if=/run/record of=/dev/$disk bs=4k seek=$n conv=notrunc,fsync 2>/dev/null; done
	dd if=/run/record of=/share/$n bs=4k conv=fsync 2>/dev/null
	;;
digest)
	for disk in vdb vdc; do dd if=/dev/$disk bs=4k count=$n 2>/dev/null | sha256sum; done
	i=0
	while [ $i -lt $n ]; do cat /share/$i; i=$((i + 1)); done | sha256sum
	;;
esac
`

// Mount is the input by which [Program] mounts the share.
const Mount = "mount\n"

// Ask has a guest run [Program] with an input, and returns what the program says.
type Ask func(ctx context.Context, input string) (answer string, err error)

// Text returns the nth record.
func Text(n int64) string {
	return strings.Repeat(fmt.Sprintf("record %8d\n", n), Bytes/16)
}

// Flushed counts the records that guests have flushed to all of their disks, from record 0 on. Its
// zero value is ready.
type Flushed struct{ count atomic.Int64 }

// Count returns how many records there are.
func (f *Flushed) Count() int64 { return f.count.Load() }

// Reset begins again.
func (f *Flushed) Reset() { f.count.Store(0) }

// Write has a guest write records until there are as many as wanted, or ctx ends.
func (f *Flushed) Write(ctx context.Context, ask Ask, upTo int64) error {
	for n := f.Count(); n < min(upTo, Most); n++ {
		_, err := ask(ctx, fmt.Sprintf("write %d\n%s", n, Text(n)))
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the request was cut off
		case err != nil:
			return fmt.Errorf("write record %d: %w", n, err)
		}
		f.count.Store(n + 1)
	}
	return nil
}

// ReadBack has a guest read its disks, and returns an error unless they have all records.
func (f *Flushed) ReadBack(ctx context.Context, ask Ask) error {
	got, err := ask(ctx, fmt.Sprintf("digest %d\n", f.Count()))
	if err != nil {
		return err
	}
	want := strings.Repeat(fmt.Sprintf("%x  -\n", sha256.Sum256(f.all())), 3)
	if got != want {
		return fmt.Errorf("the digests of %d records on vdb, vdc and the share are\n%swant\n%s", f.Count(), got, want)
	}
	return nil
}

func (f *Flushed) all() []byte {
	var all bytes.Buffer
	for n := range f.Count() {
		all.WriteString(Text(n))
	}
	return all.Bytes()
}

// On returns an error unless a file or a device begins with all records.
func (f *Flushed) On(path string) error {
	want := f.all()
	got := make([]byte, len(want))
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.ReadAt(got, 0); err != nil {
		return fmt.Errorf("read %d records: %w", f.Count(), err)
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%s lost some of %d records", path, f.Count())
	}
	return nil
}

// InShare returns an error unless a folder has all records as files.
func (f *Flushed) InShare(folder string) error {
	var errs []error
	for n := range f.Count() {
		got, err := os.ReadFile(filepath.Join(folder, strconv.FormatInt(n, 10)))
		if err == nil && string(got) != Text(n) {
			err = fmt.Errorf("the share's record %d is %d bytes long, or another", n, len(got))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
