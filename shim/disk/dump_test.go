package disk

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
)

// TestDumps: a dump takes the place of the former ones, and of nothing else.
func TestDumps(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	victim := filepath.Join(outside, "victim.memory.dump")
	for _, path := range []string{filepath.Join(dir, "a.memory.dump"), filepath.Join(dir, "vm.memory.dump"), filepath.Join(dir, "notes"), victim} {
		assert.NilError(t, os.WriteFile(path, []byte("old"), 0o600))
	}
	assert.NilError(t, os.Symlink(victim, filepath.Join(dir, "link.memory.dump")))
	assert.NilError(t, os.Mkdir(filepath.Join(dir, "folder.memory.dump"), 0o700))
	f, err := Dumps{}.Create(dir, "vm.memory.dump")
	assert.NilError(t, err)
	defer f.Close()
	_, err = f.WriteString("new")
	assert.NilError(t, err)
	entries, err := os.ReadDir(dir)
	assert.NilError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	assert.DeepEqual(t, names, []string{"folder.memory.dump", "link.memory.dump", "notes", "vm.memory.dump"})
	text, err := os.ReadFile(victim)
	assert.NilError(t, err)
	assert.Equal(t, string(text), "old")

	for _, name := range []string{"link.memory.dump", "folder.memory.dump", "../victim.memory.dump"} {
		if f, err := (Dumps{}).Create(dir, name); !errors.Is(err, ErrVolume) {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
	_, err = os.Stat(victim)
	assert.NilError(t, err)
	for range 2 {
		assert.NilError(t, Dumps{}.Remove(dir, "vm.memory.dump"))
	}
	assert.NilError(t, Dumps{}.Remove(filepath.Join(dir, "gone"), "vm.memory.dump"))
	if _, err := (Dumps{}).Create(filepath.Join(dir, "gone"), "vm.memory.dump"); !errors.Is(err, ErrVolume) {
		t.Errorf("without the folder: %v", err)
	}
}
