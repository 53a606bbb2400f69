package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// maxRecord bounds a record's file, in bytes.
const maxRecord = 64 << 10

// File stores a record in a file of a VM's folder, which only the shim writes.
type File struct{ path string }

// NewFile returns the store of the record in dir.
func NewFile(dir string) *File { return &File{path: filepath.Join(dir, "migration.json")} }

// Put replaces the record. It syncs the file, and then the folder that has its name.
func (f *File) Put(r Record) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write record %s: %w", f.path, err)
	}
	dir := filepath.Dir(f.path)
	if err := renameio.WriteFile(f.path, append(data, '\n'), 0o600, renameio.WithTempDir(dir)); err != nil {
		return fmt.Errorf("write record %s: %w", f.path, err)
	}
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("write record %s: %w", f.path, err)
	}
	return nil
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
