package disk

import (
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Errors of calls about exports and imports.
var (
	// ErrExists says that the name is taken, ErrUnknown that nothing has the name.
	ErrExists  = errors.New("exists already")
	ErrUnknown = errors.New("no such")
	// ErrName says that a name is not valid.
	ErrName = errors.New("invalid name: use up to 63 lowercase letters, digits and dashes, with a letter or a digit at both ends")
)

var shareName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// Export is a registry disk that this node serves over iSCSI, to a VM of another node
// for example. It lasts until [Exports.Remove], also after a reboot.
type Export struct {
	Name string `json:"name"`
	// ID is unique: a later export of the same name has another.
	ID   string           `json:"id"`
	Disk imageunpack.Disk `json:"disk"`
	// UID is the user of the process that shows the disk.
	UID       uint32    `json:"uid"`
	CreatedAt time.Time `json:"createdAt"`
	// Shareable lets initiators of several addresses use it at the same time.
	Shareable bool `json:"shareable,omitempty"`
}

// exportPrefix begins the ids of exports, which containers' never do.
const exportPrefix = "export-"

// IsExport reports whether an owner of a registry disk or of a view is an export.
func IsExport(owner string) bool { return strings.HasPrefix(owner, exportPrefix) }

// disk returns the export as a disk of a container.
func (e Export) disk() Disk {
	return Disk{
		Disk:       vmspec.Disk{Name: "disk", Source: vmspec.SourceImage, Mode: vmspec.ModeISCSI},
		Content:    record.Disk{Image: &e.Disk},
		VM:         record.Container{ID: e.ID, Domain: record.Domain{UID: e.UID}},
		progress:   func(expand.Progress) {},
		standalone: true,
	}
}

// Connection is what a node needs to use an export. It holds a password.
type Connection struct {
	Name      string `json:"name,omitempty"`
	Portal    string `json:"portal"`
	Target    string `json:"target"`
	LUN       int    `json:"lun"`
	Initiator string `json:"initiator"`
	User      string `json:"user"`
	Password  string `json:"password"`
	// Size is that of the disk, in bytes.
	Size int64 `json:"size,omitempty"`
	// Shareable is as in [Export], for the VMs of one node.
	Shareable bool `json:"shareable,omitempty"`
}
