package disk

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/record"
)

// TestBackups: the files of a backup have their names once it is complete, and none of a failed one
// stays.
func TestBackups(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	b := record.Backup{Folder: dir, Dir: "vm/first", Disks: []record.BackupDisk{{File: "a.qcow2", Size: 1 << 20}, {File: "b.qcow2", Size: 1 << 30}}}
	names := func() (all []string) {
		assert.NilError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if name, _ := filepath.Rel(dir, path); !d.IsDir() {
				all = append(all, name)
			}
			return err
		}))
		return all
	}
	create := func() {
		files, err := Backups{}.Create(b)
		assert.NilError(t, err)
		assert.Equal(t, len(files), 2)
		for _, f := range files {
			assert.NilError(t, f.Close())
		}
	}
	create()
	assert.DeepEqual(t, names(), []string{"vm/first/a.qcow2.partial", "vm/first/b.qcow2.partial"})
	assert.NilError(t, os.Rename(filepath.Join(dir, "vm/first/a.qcow2.partial"), filepath.Join(dir, "vm/first/a.qcow2"))) // a crash in between
	for range 2 {
		assert.NilError(t, Backups{}.Complete(b))
	}
	assert.DeepEqual(t, names(), []string{"vm/first/a.qcow2", "vm/first/b.qcow2"})
	if _, err := (Backups{}).Create(b); !errors.Is(err, fs.ErrExist) || !errors.Is(err, ErrVolume) {
		t.Errorf("over a complete backup: %v", err)
	}
	assert.NilError(t, Backups{}.Remove(b)) // as the caller does then
	assert.DeepEqual(t, names(), []string{"vm/first/a.qcow2", "vm/first/b.qcow2"})
	failed := b
	failed.Dir, failed.Renaming = "vm/second", true
	_, err := Backups{}.Create(failed)
	assert.NilError(t, err)
	for range 2 {
		assert.NilError(t, Backups{}.Remove(failed))
	}
	assert.DeepEqual(t, names(), []string{"vm/first/a.qcow2", "vm/first/b.qcow2"})
	_, err = os.Stat(filepath.Join(dir, "vm/second"))
	assert.Assert(t, errors.Is(err, fs.ErrNotExist))

	assert.NilError(t, os.Symlink(outside, filepath.Join(dir, "vm/link")))
	assert.NilError(t, os.WriteFile(filepath.Join(outside, "a.qcow2"), nil, 0o600))
	for _, name := range []string{"vm/link/x", "../x", "vm/../../x"} {
		b.Dir = name
		if _, err := (Backups{}).Create(b); !errors.Is(err, ErrVolume) {
			t.Errorf("%s: created: %v", name, err)
		}
		if err := (Backups{}).Complete(b); !errors.Is(err, ErrVolume) {
			t.Errorf("%s: completed: %v", name, err)
		}
		_ = Backups{}.Remove(b)
	}
	_, err = os.Stat(filepath.Join(outside, "a.qcow2"))
	assert.NilError(t, err)
	b.Folder = filepath.Join(dir, "gone")
	assert.NilError(t, Backups{}.Remove(b))
}
