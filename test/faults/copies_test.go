//go:build faults

package faults

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/records"
)

// newest returns the number of the last record on a disk, or on the copy of one; -1 if there is none. It returns
// an error unless all records before are there: guests flush one before they write the next.
func newest(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	all := make([]byte, records.DiskBytes)
	if _, err := io.ReadFull(f, all); err != nil {
		return 0, err
	}
	slot := func(n int64) []byte { return all[n%records.Most*records.Bytes:][:records.Bytes] }
	last := int64(-1)
	for i := range int64(records.Most) {
		text, found := bytes.CutPrefix(slot(i)[:16], []byte("record"))
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if found && err == nil && n >= 0 && n%records.Most == i {
			last = max(last, n)
		}
	}
	for n := max(0, last+1-records.Most); n <= last; n++ {
		if string(slot(n)) != records.Text(n) {
			return last, fmt.Errorf("%s has record %d, and not record %d", path, last, n)
		}
	}
	return last, nil
}

// isOneMoment returns an error unless copies of both disks are of one moment, at which the guest had flushed
// some records.
func isOneMoment(paths []string, flushed int64) error {
	var last [2]int64
	for i, path := range paths {
		var err error
		if last[i], err = newest(path); err != nil {
			return err
		}
	}
	// The guest writes each record to the first disk, and then to the second.
	if d := last[0] - last[1]; d < 0 || d > 1 || last[1] < flushed-1 {
		return fmt.Errorf("the last records of the copies are %d and %d; the guest had flushed %d", last[0], last[1], flushed)
	}
	return nil
}

// chain are the backups of both disks that lead to the last one.
type chain [2][]string

// grown is the chain with another backup: an increment of its last one, or a full one.
func (c chain) grown(t *testing.T, folder string, incremental bool) chain {
	t.Helper()
	for i, disk := range []string{"files", "block"} {
		path := filepath.Join(folder, disk+".qcow2")
		qemuImg(t, "check", "-q", path)
		if !incremental {
			c[i] = nil
		} else {
			qemuImg(t, "rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b", c[i][len(c[i])-1], path)
		}
		c[i] = append(append([]string{}, c[i]...), path)
	}
	return c
}

func (c chain) last(i int) string { return c[i][len(c[i])-1] }

// restored are both disks as the last backup of the chain has them.
func (c chain) restored(t *testing.T) (paths []string) {
	t.Helper()
	for i := range c {
		path := filepath.Join(t.TempDir(), fmt.Sprint(i))
		qemuImg(t, "convert", "-f", "qcow2", "-O", "raw", c.last(i), path)
		paths = append(paths, path)
	}
	return paths
}

func qemuImg(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "qemu-img", args...).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img %q: %v: %s", args, err, out)
	}
}

// copied copies the disks, as a driver does that takes snapshots of volumes.
func (b *backupVM) copied(ctx context.Context, to string) (paths []string, err error) {
	for i, disk := range b.disks() {
		path := filepath.Join(to, fmt.Sprint(i))
		if out, err := exec.CommandContext(ctx, "dd", "if="+disk, "of="+path, "bs=1M", "iflag=direct").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("copy %s: %w: %s", disk, err, out)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// inVolume are the files of the volume, and their folders, below a folder of it.
func (b *backupVM) inVolume(t *testing.T, below string) (names []string) {
	t.Helper()
	top := filepath.Join(b.folder, below)
	err := filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err == nil && path != b.folder {
			names = append(names, strings.TrimPrefix(path, b.folder+"/"))
		}
		return err
	})
	assert.NilError(t, err)
	return names
}
