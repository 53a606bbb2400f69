package record

import (
	"encoding/json"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Disk is what a disk of a machine's spec is made of, as far as it was found out
// or made for it.
type Disk struct {
	// Image is the registry disk, held for this container; nil where the disk's
	// content comes from elsewhere.
	Image *imageunpack.Disk `json:"image,omitempty"`
	// Import is the disk of another node that it is; nil for others.
	Import *Import `json:"import,omitempty"`
}

// Import is a disk that another node exports over iSCSI. Its password is not in
// records.
type Import struct {
	Name      string `json:"name"`
	Portal    string `json:"portal"`
	Target    string `json:"target"`
	LUN       int    `json:"lun"`
	Initiator string `json:"initiator"`
	User      string `json:"user"`
	// Shareable lets several VMs use it at the same time.
	Shareable bool `json:"shareable,omitempty"`
}

// UnmarshalJSON implements json.Unmarshaler. Before version 3 a VM had one
// registry disk, in a field of its own.
func (r *Container) UnmarshalJSON(data []byte) error {
	type plain Container // without this method
	before3 := struct {
		*plain
		Disk *imageunpack.Disk `json:"disk"`
	}{plain: (*plain)(r)}
	if err := json.Unmarshal(data, &before3); err != nil {
		return err
	}
	if before3.Disk == nil || r.Disks != nil {
		return nil
	}
	r.Disks = map[string]Disk{}
	for _, d := range r.Spec.Disks {
		if d.Source == vmspec.SourceImage {
			r.Disks[d.Name] = Disk{Image: before3.Disk}
		}
	}
	return nil
}
