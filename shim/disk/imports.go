package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/google/renameio/v2"

	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
)

// Import is a disk of another node, for the pods of one Kubernetes namespace on this
// node. The node's administrator makes it: a pod names neither an address nor a disk of
// another namespace.
type Import struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Connection
}

// check refuses values that libvirtd must not get.
func (i Import) check() (netip.AddrPort, iscsi.Access, error) {
	a := iscsi.Access{Name: i.Target, Initiator: i.Initiator, User: i.User, Password: iscsi.NewSecret(i.Password)}
	portal, err := netip.ParseAddrPort(i.Portal)
	switch {
	case !shareName.MatchString(i.Name):
		return portal, a, fmt.Errorf("import %q: %w", i.Name, ErrName)
	case i.Namespace == "":
		return portal, a, fmt.Errorf("import %s: %w: the namespace of the pods that may use it is missing", i.Name, ErrBad)
	case err != nil:
		return portal, a, fmt.Errorf("import %s: %w: portal %q is not an address with a port", i.Name, ErrBad, i.Portal)
	case i.LUN < 0 || i.LUN > 255:
		return portal, a, fmt.Errorf("import %s: %w: LUN %d", i.Name, ErrBad, i.LUN)
	}
	if err := a.Check(); err != nil {
		return portal, a, fmt.Errorf("import %s: %w: %w", i.Name, ErrBad, err)
	}
	return portal, a, nil
}

// ErrBad says that a connection can't be used as it is.
var ErrBad = errors.New("invalid connection of an export")

// Imports are the disks of other nodes that pods of this node may use.
type Imports struct {
	dir string
	mu  sync.Mutex // held while an import is added or removed
}

func (m *Imports) file(name string) string { return filepath.Join(m.dir, name+".json") }

// Add lets the pods of a namespace use a disk of another node, by a name. Only root
// can read the file of the connection.
func (m *Imports) Add(i Import) error {
	if _, _, err := i.check(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := os.Lstat(m.file(i.Name)); err == nil {
		return fmt.Errorf("import %s: %w", i.Name, ErrExists)
	}
	text, err := json.MarshalIndent(i, "", "  ")
	if err == nil {
		err = os.MkdirAll(m.dir, 0o700)
	}
	if err == nil {
		err = renameio.WriteFile(m.file(i.Name), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("import %s: %w", i.Name, err)
	}
	return nil
}

// Remove removes an import. VMs that run keep their disk.
func (m *Imports) Remove(name string) error {
	if !shareName.MatchString(name) {
		return fmt.Errorf("import %q: %w", name, ErrName)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	err := os.Remove(m.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w import %q", ErrUnknown, name)
	}
	return err
}

// List returns all imports.
func (m *Imports) List() ([]Import, error) {
	files, err := filepath.Glob(m.file("*"))
	if err != nil {
		return nil, err
	}
	var all []Import
	for _, path := range files {
		i, err := m.read(strings.TrimSuffix(filepath.Base(path), ".json"))
		if errors.Is(err, ErrUnknown) {
			continue // forgotten meanwhile
		}
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, nil
}

// read returns an import, or ErrUnknown.
func (m *Imports) read(name string) (Import, error) {
	if !shareName.MatchString(name) {
		return Import{}, fmt.Errorf("import %q: %w", name, ErrName)
	}
	text, err := os.ReadFile(m.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return Import{}, fmt.Errorf("%w import %q", ErrUnknown, name)
	}
	var i Import
	if err == nil {
		err = json.Unmarshal(text, &i)
	}
	if err != nil {
		return Import{}, fmt.Errorf("read import %s: %w", name, err)
	}
	return i, nil
}
