package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/google/renameio/v2"
)

// ErrNewer is returned for a record that a newer version of this program wrote.
var ErrNewer = errdefs.ErrFailedPrecondition.WithMessage("record is of a newer version of nodevirt")

// Store reads and writes records below a folder:
//
//	sandboxes/ID.json      and KEY.intent of one that is being created
//	containers/ID/record.json   and beside it what belongs to the VM
//
//	broken/                what MoveBroken moved out of sandboxes/
//
// A write replaces a whole record. Different records may be written concurrently.
// IDs are containerd's: 64 hexadecimal digits.
type Store struct{ root string }

// Open creates the folders below root, which only the shim uses.
func Open(root string) (*Store, error) {
	s := &Store{root: root}
	for dir, mode := range map[string]fs.FileMode{root: 0o711, s.sandboxes(): 0o700, s.containers(): 0o711, s.broken(): 0o700} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return nil, fmt.Errorf("create the folder of records: %w", err)
		}
		if err := setMode(dir, mode); err != nil {
			return nil, fmt.Errorf("create the folder of records: %w", err)
		}
	}
	return s, nil
}

// setMode sets the mode of a folder: QEMU runs under its own uid, and opens its kernel
// through these folders. It changes nothing if the mode is right, since the file system
// may be read-only, and must not keep the shim from the VMs that run.
func setMode(dir string, mode fs.FileMode) error {
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() == mode {
		return err
	}
	return os.Chmod(dir, mode)
}

func (s *Store) sandboxes() string  { return filepath.Join(s.root, "sandboxes") }
func (s *Store) broken() string     { return filepath.Join(s.root, "broken") }
func (s *Store) containers() string { return filepath.Join(s.root, "containers") }

// ContainerDir returns the folder of a VM container. It exists from the first PutContainer to
// RemoveContainer.
func (s *Store) ContainerDir(id string) string { return filepath.Join(s.containers(), id) }

// PutSandbox writes a sandbox's record.
func (s *Store) PutSandbox(r Sandbox) error {
	if err := checkID(r.ID); err != nil {
		return fmt.Errorf("write the record of sandbox: %w", err)
	}
	r.Version = Version
	return write(filepath.Join(s.sandboxes(), r.ID+".json"), r)
}

// RemoveSandbox removes a sandbox's record. A missing record is not an error.
func (s *Store) RemoveSandbox(id string) error {
	if err := checkID(id); err != nil {
		return fmt.Errorf("remove the record of sandbox: %w", err)
	}
	return ignoreAbsent(os.Remove(filepath.Join(s.sandboxes(), id+".json")))
}

// PutIntent records that a sandbox is being created, under a key that the caller
// chooses and that has the form of an ID.
func (s *Store) PutIntent(key string, r Sandbox) error {
	if err := checkID(key); err != nil {
		return fmt.Errorf("write an intent: %w", err)
	}
	r.Version = Version
	return write(filepath.Join(s.sandboxes(), key+".intent"), r)
}

// RemoveIntent removes what PutIntent wrote. A missing intent is not an error.
func (s *Store) RemoveIntent(key string) error {
	if err := checkID(key); err != nil {
		return fmt.Errorf("remove an intent: %w", err)
	}
	return ignoreAbsent(os.Remove(filepath.Join(s.sandboxes(), key+".intent")))
}

// Intents returns the intents that can be read, by their keys.
func (s *Store) Intents() (map[string]Sandbox, error) {
	entries, err := os.ReadDir(s.sandboxes())
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	all := map[string]Sandbox{}
	for _, e := range entries {
		key, ok := strings.CutSuffix(e.Name(), ".intent")
		if !ok || !isID(key) {
			continue
		}
		if r, err := read[Sandbox](filepath.Join(s.sandboxes(), e.Name())); err == nil {
			all[key] = r
		}
	}
	return all, nil
}

// Sandboxes returns the records of all sandboxes but the [Store.Refused].
func (s *Store) Sandboxes() ([]Sandbox, error) {
	return readAll[Sandbox](s.sandboxes(), ".json", "")
}

// PutContainer writes a container's record, and creates its folder if it is missing.
func (s *Store) PutContainer(r Container) error {
	if err := checkID(r.ID); err != nil {
		return fmt.Errorf("write the record of container: %w", err)
	}
	r.Version = Version
	if err := os.Mkdir(s.ContainerDir(r.ID), 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create the folder of container %s: %w", r.ID, err)
	}
	return write(filepath.Join(s.ContainerDir(r.ID), "record.json"), r)
}

// RemoveContainer removes a container's folder and its contents.
func (s *Store) RemoveContainer(id string) error {
	if err := checkID(id); err != nil {
		return fmt.Errorf("remove the folder of container: %w", err)
	}
	return os.RemoveAll(s.ContainerDir(id))
}

// Containers returns the records of all containers but the [Store.Refused].
func (s *Store) Containers() ([]Container, error) {
	return readAll[Container](s.containers(), "", "record.json")
}

// RemoveUnrecorded removes folders without a record, which a crash left before anything else was created for the
// container, but those that keep returns true for: their record is lost, and their guest runs.
func (s *Store) RemoveUnrecorded(keep func(id string) bool) error {
	dirs, err := os.ReadDir(s.containers())
	if err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	var errs []error
	for _, d := range dirs {
		_, err := os.Lstat(filepath.Join(s.containers(), d.Name(), "record.json"))
		if !errors.Is(err, fs.ErrNotExist) || !isID(d.Name()) || keep(d.Name()) {
			continue
		}
		if err := s.RemoveContainer(d.Name()); err != nil {
			errs = append(errs, fmt.Errorf("remove a folder without a record: %w", err))
		}
	}
	return errors.Join(errs...)
}

var idPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

func isID(s string) bool { return idPattern.MatchString(s) }

func checkID(s string) error {
	if !isID(s) {
		return fmt.Errorf("%q is not an ID of 64 hexadecimal digits", s)
	}
	return nil
}

// write leaves either the old record or the new one if it is interrupted: it syncs
// the file before it renames it. The temporary file is in the same folder, not in
// the system's folder for temporary files.
func write(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write record %s: %w", path, err)
	}
	err = renameio.WriteFile(path, append(data, '\n'), 0o600, renameio.WithTempDir(filepath.Dir(path)))
	if err != nil {
		return fmt.Errorf("write record %s: %w", path, err)
	}
	return nil
}

// readAll reads the record of each entry of dir that is named ID+suffix: the file
// itself, or the file inner in it. It skips temporary files, which an interrupted write left,
// and records that cannot be used.
func readAll[T interface{ valid(id string) error }](dir, suffix, inner string) ([]T, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read records: %w", err)
	}
	var all []T
	for _, e := range entries {
		id, found := e.Name(), true
		if suffix != "" {
			found = filepath.Ext(id) == suffix
			id = id[:len(id)-len(filepath.Ext(id))]
		}
		if !found || !isID(id) {
			continue
		}
		if r, err := read[T](filepath.Join(dir, e.Name(), inner)); err == nil && r.valid(id) == nil {
			all = append(all, r)
		}
	}
	return all, nil
}

func read[T any](path string) (T, error) {
	var r T
	data, err := os.ReadFile(path)
	if err != nil {
		return r, fmt.Errorf("read record: %w", err)
	}
	var head struct{ Version int }
	if err := json.Unmarshal(data, &head); err != nil {
		return r, broken(path, err)
	}
	if head.Version > Version {
		return r, fmt.Errorf("read record %s: %w (%d, this one reads up to %d): "+
			"run that version, or remove the VM with it first", path, ErrNewer, head.Version, Version)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, broken(path, err)
	}
	if head.Version < Version {
		return r, broken(path, fmt.Errorf("version %d is not supported, this program reads version %d", head.Version, Version))
	}
	return r, nil
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
