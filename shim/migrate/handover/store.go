package handover

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// maxRecord bounds a record's file, in bytes.
const maxRecord = 64 << 10

// File stores a record in a file of a VM's folder, which only the shim writes.
type File struct{ path string }

// NewFile returns the store of the record in dir.
func NewFile(dir string) *File { return &File{path: filepath.Join(dir, "migration.json")} }

// A record without a long reason fits into one sector, which a disk writes whole or not at all. Its file
// has the size of a block of file systems; the rest is white space. So the next such record replaces it
// in place, which takes one flush of the disk: a guest waits for that, stopped.
const (
	sectorSize = 512
	blockSize  = 4096
)

// Put replaces the record.
func (f *File) Put(r Record) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write record %s: %w", f.path, err)
	}
	data = append(data, '\n')
	inPlace := false
	if len(data) <= sectorSize {
		inPlace, err = f.overwrite(padded(data, sectorSize))
		data = padded(data, blockSize)
	} else if len(data) == blockSize {
		data = append(data, '\n') // not the size of a short one
	}
	if err == nil && !inPlace {
		err = f.replace(data)
	}
	if err != nil {
		return fmt.Errorf("write record %s: %w", f.path, err)
	}
	return nil
}

// padded returns JSON with white space up to a size.
func padded(data []byte, size int) []byte {
	return append(slices.Clone(data), bytes.Repeat([]byte{'\n'}, size-len(data))...)
}

// overwrite writes the first sector of a short record's file, and syncs it. It reports false if there is
// no such file.
func (f *File) overwrite(sector []byte) (done bool, err error) {
	file, err := os.OpenFile(f.path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil || info.Size() != blockSize {
		return false, err
	}
	if _, err := file.WriteAt(sector, 0); err != nil {
		return false, err
	}
	return true, unix.Fdatasync(int(file.Fd()))
}

// replace replaces the file. It syncs the new one, and then the folder that has its name.
func (f *File) replace(data []byte) error {
	dir := filepath.Dir(f.path)
	if err := renameio.WriteFile(f.path, data, 0o600, renameio.WithTempDir(dir)); err != nil {
		return err
	}
	return syncDir(dir)
}

// Get returns the record. found is false if there is none. A record that cannot be
// used is an error: its VM must neither run nor be removed without an administrator.
func (f *File) Get() (r Record, found bool, err error) {
	file, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, false, nil
	}
	if err != nil {
		return Record{}, false, fmt.Errorf("read record: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxRecord))
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err == nil {
		err = r.check()
	}
	if err != nil {
		return Record{}, false, fmt.Errorf("read record %s: %w", f.path, err)
	}
	return r, true, nil
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
