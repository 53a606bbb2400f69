package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Broken is a sandbox's record that cannot be read, and was moved to the folder broken/.
type Broken struct {
	// Kind is "sandbox" or "intent".
	Kind string
	ID   string
	// Path is its new path.
	Path string
	// Err is the reason.
	Err error
}

// MoveBroken moves broken records of sandboxes (truncated, garbled, or of another ID)
// to broken/: the record of the sandbox's VM holds the same. It leaves records that
// a newer version wrote, or that the disk fails to return, to [Store.Refused]. Call
// it when the shim starts, before the reading functions.
func (s *Store) MoveBroken() ([]Broken, error) {
	var all []Broken
	for _, k := range []struct {
		kind, suffix string
	}{
		{"sandbox", ".json"},
		{"intent", ".intent"},
	} {
		entries, err := os.ReadDir(s.sandboxes())
		if err != nil {
			return all, fmt.Errorf("read records: %w", err)
		}
		for _, e := range entries {
			id, found := strings.CutSuffix(e.Name(), k.suffix)
			if !found || !isID(id) {
				continue
			}
			from := filepath.Join(s.sandboxes(), e.Name())
			owner := id
			if k.kind == "intent" {
				owner = "" // its key is not the sandbox's ID, which is not known yet
			}
			broken := checkRecord[Sandbox](from, owner)
			if !errors.Is(broken, errBroken) {
				continue
			}
			to, err := s.moveToBroken(from)
			if err != nil {
				return all, errors.Join(broken, err)
			}
			all = append(all, Broken{Kind: k.kind, ID: id, Path: to, Err: broken})
		}
	}
	return all, nil
}

// errBroken marks records whose content is not a record's.
var errBroken = errors.New("record is broken")

// checkRecord returns errBroken if the file is not a record, or is not that of the ID.
func checkRecord[T interface{ valid(id string) error }](path, id string) error {
	r, err := read[T](path)
	if err != nil {
		return err
	}
	if err := r.valid(id); err != nil {
		return fmt.Errorf("read record %s: %w: %w", path, errBroken, err)
	}
	return nil
}

func (r Sandbox) valid(id string) error {
	if r.ID != id {
		return fmt.Errorf("it belongs to sandbox %q", r.ID)
	}
	if r.Config.Value.GetMetadata() == nil {
		return errors.New("it names no pod")
	}
	return nil
}

func (r Container) valid(id string) error {
	if r.ID != id {
		return fmt.Errorf("it belongs to container %q", r.ID)
	}
	if !slices.Contains([]State{Creating, Created, Starting, Running, Exited}, r.State) {
		return fmt.Errorf("unknown state %q", r.State)
	}
	if !isID(r.SandboxID) || r.Sandbox.Value.GetMetadata() == nil || r.Config.Value.GetMetadata() == nil {
		return errors.New("it names no pod or no container")
	}
	return nil
}

// moveToBroken moves a file to broken/. It appends a number if the name is taken.
func (s *Store) moveToBroken(from string) (to string, err error) {
	base := filepath.Join(s.broken(), filepath.Base(from))
	to = base
	for n := 1; ; n++ {
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			break
		}
		to = base + "." + strconv.Itoa(n)
	}
	if err := os.Rename(from, to); err != nil {
		return "", fmt.Errorf("move a broken record to broken/: %w", err)
	}
	return to, nil
}

// broken wraps a decoding error with errBroken. Of a newer version's record only
// the version is decoded.
func broken(path string, err error) error {
	if _, syntax := errors.AsType[*json.SyntaxError](err); syntax && err.Error() == "unexpected end of JSON input" {
		err = errors.New("it is truncated")
	}
	return fmt.Errorf("read record %s: %w: %w", path, errBroken, err)
}
