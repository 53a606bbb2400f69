// Package journal records the original files of a node before nodevirt changes them, and restores
// them byte for byte.
//
// It owns the journal's file and the writing of other files. It leaves to its users which files
// change, and which services must restart. A Journal is saved before the first change, so a process
// that is killed at any time leaves a node that Restore repairs. Restore can run again.
package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/nodesetup/rooted"
)

// Dir is the folder of the journal, and Path the journal's file, both below the root folder. The
// package nodevirt-node is not removed while the file exists.
const (
	Dir  = "var/lib/nodevirt-node"
	Path = Dir + "/install.json"
)

// State is how far an installation is.
type State string

// The states.
//
//	(no journal) ──▶ changing ──▶ installed
//	      ▲             │ restore     │ uninstall
//	      └─────────────┴── changing ◀┤
//	                                  └──▶ upgrading ──▶ installed
const (
	// Changing: files may be original or changed.
	Changing State = "changing"
	// Installed: all files are changed, and the node was ready afterwards.
	Installed State = "installed"
	// Upgrading: as installed, but files may be of the version before.
	Upgrading State = "upgrading"
)

// Journal is what a node was before the installation.
type Journal struct {
	State State `json:"state"`
	// Layout names the Kubernetes distribution.
	Layout string `json:"layout"`
	// Files are the changed files, in the order in which they are written.
	Files []File `json:"files"`
	// ShimEnabled says that the shim's unit was enabled before.
	ShimEnabled bool `json:"shimEnabled"`
	// Label is the value of the node's label before; nil if the node did not have it.
	Label *string `json:"label"`
}

// File is a file that the installation writes.
type File struct {
	// Path is relative to the root folder.
	Path string `json:"path"`
	// Before is the original; nil if there was no file.
	Before *Content `json:"before"`
	// After is what the installation writes.
	After Content `json:"after"`
	// Made are the folders that the installation creates for the file, the outermost first.
	Made []string `json:"made,omitempty"`
}

// Content is a file's content and attributes.
type Content struct {
	Data []byte      `json:"data"`
	Mode fs.FileMode `json:"mode"`
	UID  int         `json:"uid"`
	GID  int         `json:"gid"`
}

// Equal reports whether both have the same content and attributes.
func (c Content) Equal(other Content) bool {
	return string(c.Data) == string(other.Data) && c.Mode == other.Mode && c.UID == other.UID && c.GID == other.GID
}

// Plan returns the record of a file that will have the given text. The file keeps its mode and owner;
// a new file is root's, with mode 0644. The path of the record has no links.
func Plan(root *os.Root, name string, text []byte) (File, error) {
	name, err := rooted.Place(root, name)
	if err != nil {
		return File{}, err
	}
	before, err := read(root, name)
	if err != nil {
		return File{}, err
	}
	f := File{Path: name, Before: before, After: Content{Data: text, Mode: 0o644, UID: os.Geteuid(), GID: os.Getegid()}}
	if before != nil {
		f.After.Mode, f.After.UID, f.After.GID = before.Mode, before.UID, before.GID
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		_, err := root.Lstat(dir)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return File{}, fmt.Errorf("examine /%s: %w", dir, err)
		}
		f.Made = append([]string{dir}, f.Made...)
	}
	return f, nil
}

// Adopt takes over files that another version writes. The originals stay those of before the first
// installation; new files come before the last one, which is the kubelet's.
func (j *Journal) Adopt(files []File) {
	all := slices.Clone(j.Files)
	for _, f := range files {
		i := slices.IndexFunc(all, func(known File) bool { return known.Path == f.Path })
		if i >= 0 {
			all[i].After = f.After
			continue
		}
		all = slices.Insert(all, max(len(all)-1, 0), f)
	}
	j.Files = all
}

// Changes reports whether the file will differ.
func (f File) Changes() bool { return f.Before == nil || !f.Before.Equal(f.After) }

// Load returns the journal below the root folder; nil if there is none.
func Load(root *os.Root) (*Journal, error) {
	text, err := root.ReadFile(Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no journal is no error
	}
	if err != nil {
		return nil, fmt.Errorf("read the installation's journal: %w", err)
	}
	var j Journal
	if err := json.Unmarshal(text, &j); err != nil {
		return nil, fmt.Errorf("read the installation's journal /%s: %w", Path, err)
	}
	return &j, nil
}

// Save writes the journal to disk, atomically.
func (j *Journal) Save(root *os.Root) error {
	text, err := json.MarshalIndent(j, "", "  ")
	if err == nil {
		err = root.MkdirAll(Dir, 0o700)
	}
	if err == nil {
		// It may hold secrets of the files.
		err = write(root, Path, Content{Data: append(text, '\n'), Mode: 0o600, UID: os.Geteuid(), GID: os.Getegid()})
	}
	if err != nil {
		return fmt.Errorf("write the installation's journal: %w", err)
	}
	return nil
}

// Remove deletes the journal: nothing of the installation is left.
func Remove(root *os.Root) error {
	if err := root.RemoveAll(Dir); err != nil {
		return fmt.Errorf("remove the installation's journal: %w", err)
	}
	return nil
}

// Apply writes all files. The journal must be saved.
func (j *Journal) Apply(root *os.Root) error {
	for _, f := range j.Files {
		if now, err := read(root, f.Path); err == nil && now != nil && now.Equal(f.After) {
			continue
		}
		if err := root.MkdirAll(path.Dir(f.Path), 0o755); err != nil {
			return fmt.Errorf("change /%s: %w", f.Path, err)
		}
		if err := write(root, f.Path, f.After); err != nil {
			return fmt.Errorf("change /%s: %w", f.Path, err)
		}
	}
	return nil
}

// Changed returns the files that are not as the installation wrote them.
func (j *Journal) Changed(root *os.Root) ([]string, error) {
	return j.unlike(root, func(f File, now *Content) bool { return now != nil && string(now.Data) == string(f.After.Data) })
}

// Edited returns the files that are neither as the installation wrote them, nor as they were before:
// Restore would lose another program's changes.
func (j *Journal) Edited(root *os.Root) ([]string, error) {
	return j.unlike(root, func(f File, now *Content) bool {
		if now == nil {
			return f.Before == nil
		}
		return string(now.Data) == string(f.After.Data) || f.Before != nil && now.Equal(*f.Before)
	})
}

func (j *Journal) unlike(root *os.Root, known func(f File, now *Content) bool) ([]string, error) {
	var names []string
	for _, f := range j.Files {
		now, err := read(root, f.Path)
		if err != nil {
			return nil, err
		}
		if !known(f, now) {
			names = append(names, "/"+f.Path)
		}
	}
	return names, nil
}

// Restore writes the originals back, and removes files and folders that the installation created. It
// tries all files, and returns all errors.
func (j *Journal) Restore(root *os.Root) error {
	var errs []error
	for _, f := range slices.Backward(j.Files) {
		if err := restore(root, f); err != nil {
			errs = append(errs, fmt.Errorf("restore /%s: %w", f.Path, err))
		}
	}
	return errors.Join(errs...)
}

func restore(root *os.Root, f File) error {
	if err := root.Remove(f.Path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if f.Before != nil {
		// A file that is as it was needs no room, of which there may be none.
		if now, err := read(root, f.Path); err == nil && now != nil && now.Equal(*f.Before) {
			return nil
		}
		return write(root, f.Path, *f.Before)
	}
	if err := root.Remove(f.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, dir := range slices.Backward(f.Made) {
		// A folder that another program uses meanwhile stays.
		if err := root.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return nil
}
