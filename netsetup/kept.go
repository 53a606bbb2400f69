package netsetup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// planName is the file in a VM's folder with its Plan. The caller's record has the Plan, too, and counts: the file is for
// the [Setup.Sweep] of a VM whose record is lost. Without it, nothing would give the pod its addresses back, and CNI finds
// what it has made for them by the addresses that the pod has at its end.
const planName = "plan.json"

// keep writes the Plan to the VM's folder before anything changes. A reader finds the whole Plan or no file.
func (s *Setup) keep(p Plan) error {
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode the plan of pod network %s: %w", p.Netns, err)
	}
	file := filepath.Join(s.folder(p), planName)
	err = os.MkdirAll(s.folder(p), 0o700)
	if err == nil {
		err = os.WriteFile(file+".new", text, 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		return fmt.Errorf("write the plan of pod network %s: %w", p.Netns, err)
	}
	return nil
}

// kept returns the Plan that keep has written for a VM, and false if there is none that can be used: nothing was changed,
// or an older shim did it.
func (s *Setup) kept(id string) (p Plan, ok bool, err error) {
	text, err := os.ReadFile(filepath.Join(s.dir, id, planName))
	if errors.Is(err, fs.ErrNotExist) {
		return Plan{}, false, nil
	}
	if err != nil {
		return Plan{}, false, fmt.Errorf("read the plan of VM %s's network: %w", id, err)
	}
	if json.Unmarshal(text, &p) != nil || p.ID != id || p.check() != nil {
		s.log.Warn("the plan of a VM's network cannot be read: its pod keeps what the VM had there until the pod ends", "id", id)
		return Plan{}, false, nil //nolint:nilerr // as if there were none
	}
	return p, true, nil
}

// forget removes the VM's folder, once nothing of the Plan is left.
func (s *Setup) forget(p Plan) error {
	if err := os.RemoveAll(s.folder(p)); err != nil {
		return fmt.Errorf("remove the folder of VM %s's network: %w", p.ID, err)
	}
	return nil
}
