package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
)

// Dumps are the files of memory dumps in the folders of volumes. The volumes' other users may
// write there, too.
type Dumps struct{}

// maxListed bounds the files of a folder that are looked at, and listedAtOnce those read at once.
const (
	maxListed    = 10_000
	listedAtOnce = 100
)

// Create creates the file of a dump, and removes the folder's former dumps: a volume may have
// room for one. It never opens a file that exists.
func (Dumps) Create(folder, name string) (*os.File, error) {
	if err := checkSubPath(folder); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrVolume, err)
	}
	defer root.Close()
	if err := removeDumps(root); err != nil {
		return nil, fmt.Errorf("%w: remove its former memory dumps: %w", ErrVolume, err)
	}
	f, err := createIn(root, name)
	if err != nil {
		return nil, fmt.Errorf("%w: create the memory dump: %w", ErrVolume, err)
	}
	return f, nil
}

// Remove removes the file of a dump that failed. A file, or a folder, that is missing is no error.
func (Dumps) Remove(folder, name string) error {
	err := inFolder(folder, func(root *os.Root) error { return root.Remove(name) })
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: remove an incomplete memory dump: %w", ErrVolume, err)
	}
	return nil
}

// removeDumps removes the regular files that are dumps by their names.
func removeDumps(root *os.Root) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	defer dir.Close()
	var dumps []string
	for seen := 0; seen < maxListed; seen += listedAtOnce {
		entries, err := dir.ReadDir(listedAtOnce)
		for _, e := range entries {
			if e.Type().IsRegular() && strings.HasSuffix(e.Name(), order.DumpSuffix) {
				dumps = append(dumps, e.Name())
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	for _, name := range dumps {
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
