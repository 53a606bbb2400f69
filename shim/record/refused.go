package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Refused is a record that this program cannot use: a newer version wrote it, its
// content is not a record's, or the disk fails to return it. Its file stays as it is.
type Refused struct {
	// Kind is "sandbox", "intent" or "container".
	Kind string
	ID   string
	Path string
	// Err is the reason.
	Err error
	// Container or Sandbox has the ID and the fields that could be read. The
	// container's state is Unknown.
	Container Container
	Sandbox   Sandbox
}

// Refused returns the records that the other reading functions leave out, and that
// MoveBroken does not move.
func (s *Store) Refused() ([]Refused, error) {
	var all []Refused
	for _, k := range []struct {
		kind, dir, suffix, inner string
	}{
		{"sandbox", s.sandboxes(), ".json", ""},
		{"intent", s.sandboxes(), ".intent", ""},
		{"container", s.containers(), "", "record.json"},
	} {
		entries, err := os.ReadDir(k.dir)
		if err != nil {
			return nil, fmt.Errorf("read records: %w", err)
		}
		for _, e := range entries {
			id, found := strings.CutSuffix(e.Name(), k.suffix)
			if !found || !isID(id) {
				continue
			}
			r := Refused{Kind: k.kind, ID: id, Path: filepath.Join(k.dir, e.Name(), k.inner)}
			if r.check(); r.Err != nil {
				all = append(all, r)
			}
		}
	}
	return all, nil
}

// check sets Err if the record cannot be used, and what could be read of it.
func (r *Refused) check() {
	switch r.Kind {
	case "container":
		if r.Err = checkRecord[Container](r.Path, r.ID); ignoreAbsent(r.Err) == nil {
			r.Err = nil // RemoveUnrecorded removes the folder
			return
		}
		r.Container = salvageContainer(r.Path, r.ID)
	case "sandbox":
		if r.Err = checkRecord[Sandbox](r.Path, r.ID); r.Err != nil {
			r.Sandbox = salvageSandbox(r.Path, r.ID)
		}
	default:
		r.Err = checkRecord[Sandbox](r.Path, "")
	}
}

// salvageContainer returns the fields of a container's record that can be read.
func salvageContainer(path, id string) Container {
	var r Container
	salvage(path, map[string]any{
		"id": &r.ID, "sandboxID": &r.SandboxID, "createdAt": &r.CreatedAt, "startedAt": &r.StartedAt,
		"config": &r.Config, "sandbox": &r.Sandbox, "logPath": &r.LogPath, "image": &r.Image,
		"spec": &r.Spec, "disks": &r.Disks, "domain": &r.Domain, "network": &r.Network, "cards": &r.Cards,
	})
	if r.ID != "" && r.ID != id {
		r = Container{} // another container's
	}
	if !isID(r.SandboxID) {
		r.SandboxID = ""
	}
	r.ID, r.State = id, Unknown
	r.Spec.Disks = knownDisks(r.Spec.Disks)
	return r
}

// knownDisks leaves out disks of sources that this program does not know.
func knownDisks(all []vmspec.Disk) []vmspec.Disk {
	var known []vmspec.Disk
	for _, d := range all {
		if slices.ContainsFunc(vmspec.VolumeKinds(), func(k vmspec.VolumeKind) bool { return k.Source == d.Source }) {
			known = append(known, d)
		}
	}
	return known
}

// salvageSandbox returns the fields of a sandbox's record that can be read.
func salvageSandbox(path, id string) Sandbox {
	var r Sandbox
	salvage(path, map[string]any{"id": &r.ID, "handler": &r.Handler, "createdAt": &r.CreatedAt, "config": &r.Config})
	if r.ID != "" && r.ID != id {
		r = Sandbox{}
	}
	r.ID = id
	return r
}

// salvage decodes the fields of a record, up to the first byte that is not JSON. A
// field of another form stays empty.
func salvage(path string, fields map[string]any) {
	data, err := os.ReadFile(path)
	if err != nil {
		return
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if first, err := d.Token(); err != nil || first != json.Delim('{') {
		return
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return
		}
		if field, ok := fields[fmt.Sprint(key)]; ok {
			_ = json.Unmarshal(value, field)
		}
	}
}
