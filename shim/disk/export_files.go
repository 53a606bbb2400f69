package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
)

// exportFiles are the folders of exports, which hold the disk's file and the record.
type exportFiles struct{ dir string }

// exportFile is the record of an export, in its folder beside the disk's file.
const exportFile = "export.json"

func (f exportFiles) folder(id string) string { return filepath.Join(f.dir, id) }

// make makes the folder of an export.
func (f exportFiles) make(id string) error { return os.MkdirAll(f.folder(id), 0o700) }

// record writes the record of an export.
func (f exportFiles) record(e Export) error {
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(f.folder(e.ID), exportFile), text, 0o600)
}

// removeRecord removes the record of an export, if there is one.
func (f exportFiles) removeRecord(id string) error {
	if err := os.Remove(filepath.Join(f.folder(id), exportFile)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// list returns all exports; with an error, those whose records can be read.
func (f exportFiles) list() ([]Export, error) {
	files, err := filepath.Glob(filepath.Join(f.dir, exportPrefix+"*", exportFile))
	if err != nil {
		return nil, err
	}
	var all []Export
	var errs []error
	for _, path := range files {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		var e Export
		if err == nil {
			err = json.Unmarshal(text, &e)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read export %s: %w", path, err))
			continue
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b Export) int { return strings.Compare(a.Name, b.Name) })
	return all, errors.Join(errs...)
}

// ids returns the ids of the exports that have a folder.
func (f exportFiles) ids() ([]string, error) {
	all, err := filepath.Glob(f.folder(exportPrefix + "*"))
	for i, path := range all {
		all[i] = filepath.Base(path)
	}
	return all, err
}

// remove removes an export's folder, its record first, so that a crash leaves no
// export.
func (f exportFiles) remove(id string) error {
	if err := f.removeRecord(id); err != nil {
		return err
	}
	return os.RemoveAll(f.folder(id))
}

// syncFile makes a file's content outlive a power cut.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
