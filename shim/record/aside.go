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

// Aside is a record that says nothing that can be understood, and was moved to
// the folder broken/ with all that belongs to it.
type Aside struct {
	// Kind is "sandbox", "intent" or "container".
	Kind string
	ID   string
	// Path is where it is now.
	Path string
	// Err says what is wrong with it.
	Err error
}

// SetAside moves the records that are broken (cut off, garbage, another one's)
// out of the way, so that they stop nothing but their own VM. Those that a newer
// version wrote, or that the disk does not give out, are errors of the reading
// functions as ever. Call it at start, before them.
func (s *Store) SetAside() ([]Aside, error) {
	var all []Aside
	for _, k := range []struct {
		kind, dir, suffix, inner string
		check                    func(path, id string) error
	}{
		{"sandbox", s.sandboxes(), ".json", "", checkRecord[Sandbox]},
		{"intent", s.sandboxes(), ".intent", "", checkRecord[Sandbox]},
		{"container", s.containers(), "", "record.json", checkRecord[Container]},
	} {
		entries, err := os.ReadDir(k.dir)
		if err != nil {
			return all, fmt.Errorf("read records: %w", err)
		}
		for _, e := range entries {
			id, found := strings.CutSuffix(e.Name(), k.suffix)
			if !found || !isID(id) {
				continue
			}
			from := filepath.Join(k.dir, e.Name())
			owner := id
			if k.kind == "intent" {
				owner = "" // its key is not the sandbox's id, which nobody knows yet
			}
			broken := k.check(filepath.Join(from, k.inner), owner)
			if !errors.Is(broken, errBroken) {
				continue
			}
			to, err := s.moveAside(from)
			if err != nil {
				return all, errors.Join(broken, err)
			}
			all = append(all, Aside{Kind: k.kind, ID: id, Path: to, Err: broken})
		}
	}
	return all, nil
}

// errBroken marks what SetAside takes for broken.
var errBroken = errors.New("record is broken")

// checkRecord is an error that is errBroken if the file is not a record, or not
// that of the id.
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
		return fmt.Errorf("it is that of sandbox %q", r.ID)
	}
	if r.Config.Value.GetMetadata() == nil {
		return errors.New("it names no pod")
	}
	return nil
}

func (r Container) valid(id string) error {
	if r.ID != id {
		return fmt.Errorf("it is that of container %q", r.ID)
	}
	if !slices.Contains([]State{Creating, Created, Starting, Running, Exited}, r.State) {
		return fmt.Errorf("there is no state %q", r.State)
	}
	if !isID(r.SandboxID) || r.Sandbox.Value.GetMetadata() == nil || r.Config.Value.GetMetadata() == nil {
		return errors.New("it names no pod or no container")
	}
	return nil
}

// moveAside renames into broken/, where the name may be taken by an older one.
func (s *Store) moveAside(from string) (to string, err error) {
	base := filepath.Join(s.broken(), filepath.Base(from))
	to = base
	for n := 1; ; n++ {
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			break
		}
		to = base + "." + strconv.Itoa(n)
	}
	if err := os.Rename(from, to); err != nil {
		return "", fmt.Errorf("set a broken record aside: %w", err)
	}
	return to, nil
}

// ContainersAside are the ids of the containers in broken/: their guests may
// still run, and their disks are wanted until somebody removes the folder.
func (s *Store) ContainersAside() ([]string, error) {
	entries, err := os.ReadDir(s.broken())
	if err != nil {
		return nil, fmt.Errorf("read broken records: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if id, _, _ := strings.Cut(e.Name(), "."); e.IsDir() && isID(id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// broken marks an error of decoding as what it is. A newer version's record
// decodes as far as its version.
func broken(path string, err error) error {
	if _, syntax := errors.AsType[*json.SyntaxError](err); syntax && err.Error() == "unexpected end of JSON input" {
		err = errors.New("it is cut off")
	}
	return fmt.Errorf("read record %s: %w: %w", path, errBroken, err)
}
