package disk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Errors of calls about exports and imports.
var (
	// ErrExists says that the name is taken, ErrUnknown that nothing has the name.
	ErrExists  = errors.New("exists already")
	ErrUnknown = errors.New("there is no such")
	// ErrName says that a name is not valid.
	ErrName = errors.New("a name has up to 63 small letters, digits and dashes, and begins and ends with none of the last")
)

var shareName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// Export is a registry disk that this node serves over iSCSI, to a VM of another node
// for example. It lasts until [Disks.Unexport], also after a reboot.
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

func (d *Disks) connection(e Export) Connection {
	a := overISCSI{Disks: d}.access(e.disk())
	return Connection{
		Name: e.Name, Portal: d.ISCSI.Daemon.Portal().String(), Target: a.Name, LUN: iscsi.LUN,
		Initiator: a.Initiator, User: a.User, Password: a.Password.Reveal(), Size: e.Disk.VirtualSize, Shareable: e.Shareable,
	}
}

// exportFile is the record of an export, in its folder beside the disk's file.
const exportFile = "export.json"

func (d *Disks) exportDir(e Export) string { return filepath.Join(d.Shares, "exports", e.ID) }

// freeUID returns a user id that no export has, counted down from the end of the range.
// VMs' are counted up from its start.
func (d *Disks) freeUID(all []Export) uint32 {
	uid := d.LastUID
	for slices.ContainsFunc(all, func(e Export) bool { return e.UID == uid }) {
		uid--
	}
	return uid
}

// Exports returns all exports; with an error, those whose records can be read.
func (d *Disks) Exports() ([]Export, error) {
	files, err := filepath.Glob(filepath.Join(d.Shares, "exports", exportPrefix+"*", exportFile))
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

// Users returns the initiators that are logged in. Served is false for an export that
// tgtd does not serve.
func (d *Disks) Users(ctx context.Context, e Export) (users []string, served bool, err error) {
	all, err := d.ISCSI.Daemon.List(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, t := range all {
		if t.Name == d.Target(e) {
			return t.Initiators, true, nil
		}
	}
	return nil, false, nil
}

// Target returns the iSCSI name of an export.
func (d *Disks) Target(e Export) string { return overISCSI{Disks: d}.access(e.disk()).Name }

// Portal returns the address of all exports.
func (d *Disks) Portal() string { return d.ISCSI.Daemon.Portal().String() }
