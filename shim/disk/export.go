package disk

import (
	"context"
	"crypto/rand"
	"encoding/hex"
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

	"github.com/google/renameio/v2"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// What calls about exports and imports can fail with.
var (
	// ErrExists says that the name is taken, ErrUnknown that there is no such.
	ErrExists  = errors.New("exists already")
	ErrUnknown = errors.New("there is no such")
	// ErrName says that a name can't be one.
	ErrName = errors.New("a name has up to 63 small letters, digits and dashes, and begins and ends with none of the last")
)

var shareName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// Export is a registry disk that is served over iSCSI for its own sake, to a VM
// of another node for one. It is there until it is taken back, also after a reboot.
type Export struct {
	Name string `json:"name"`
	// ID is the export's for ever; a later one of the same name has another.
	ID   string           `json:"id"`
	Disk imageunpack.Disk `json:"disk"`
	// UID is what the process that shows the disk runs as.
	UID       uint32    `json:"uid"`
	CreatedAt time.Time `json:"createdAt"`
	// Shareable lets initiators of several addresses use it at the same time.
	Shareable bool `json:"shareable,omitempty"`
}

// exportPrefix tells an export's id from a container's.
const exportPrefix = "export-"

// IsExport tells whether a registry disk, or a view, is held for an export.
func IsExport(owner string) bool { return strings.HasPrefix(owner, exportPrefix) }

// disk is the export in the words of a container's disk.
func (e Export) disk() Disk {
	return Disk{
		Disk:       vmspec.Disk{Name: "disk", Source: vmspec.SourceImage, Mode: vmspec.ModeISCSI},
		Content:    record.Disk{Image: &e.Disk},
		VM:         record.Container{ID: e.ID, Domain: record.Domain{UID: e.UID}},
		progress:   func(expand.Progress) {},
		standalone: true,
	}
}

// Connection is all that it takes to use an export. It holds a password.
type Connection struct {
	Name      string `json:"name,omitempty"`
	Portal    string `json:"portal"`
	Target    string `json:"target"`
	LUN       int    `json:"lun"`
	Initiator string `json:"initiator"`
	User      string `json:"user"`
	Password  string `json:"password"`
	// Size is the disk's in bytes.
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

// ExportRequest asks for an export.
type ExportRequest struct {
	Name string `json:"name"`
	// Image is one that this node has; Path is that of one of several disks in it,
	// or empty.
	Image string `json:"image"`
	Path  string `json:"path,omitempty"`
	// Shareable is as in [Export].
	Shareable bool `json:"shareable,omitempty"`
}

// Export serves a disk of an image.
func (d *Disks) Export(ctx context.Context, r ExportRequest) (_ Connection, err error) {
	e, err := d.reserveExport(r)
	if err != nil {
		return Connection{}, err
	}
	defer d.dropReservation(e)
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
			defer cancel()
			err = fmt.Errorf("export %s: %w", e.Name, errors.Join(err, d.removeExport(ctx, e)))
		}
	}()
	if e.Disk, err = d.Unpacker.Acquire(ctx, e.ID, r.Image, r.Path); err != nil {
		return Connection{}, err
	}
	if err := d.makeExport(ctx, e); err != nil {
		return Connection{}, err
	}
	if err := d.beginExport(ctx, e); err != nil {
		return Connection{}, err
	}
	return d.connection(e), nil
}

// reserveExport takes a name, an id and a user for an export that is about to be made.
// Making it can take minutes, in which others are to be served.
func (d *Disks) reserveExport(r ExportRequest) (Export, error) {
	name := r.Name
	if !shareName.MatchString(name) {
		return Export{}, fmt.Errorf("export %q: %w", name, ErrName)
	}
	d.shares.Lock()
	defer d.shares.Unlock()
	all, err := d.Exports()
	if err != nil {
		return Export{}, err
	}
	all = append(all, d.making...)
	if slices.ContainsFunc(all, func(e Export) bool { return e.Name == name }) {
		return Export{}, fmt.Errorf("export %s: %w", name, ErrExists)
	}
	random := make([]byte, 16)
	rand.Read(random) // never fails
	e := Export{Name: name, ID: exportPrefix + hex.EncodeToString(random), UID: d.freeUID(all), CreatedAt: time.Now(), Shareable: r.Shareable}
	d.making = append(d.making, e)
	return e, nil
}

func (d *Disks) dropReservation(e Export) {
	d.shares.Lock()
	defer d.shares.Unlock()
	d.making = slices.DeleteFunc(d.making, func(o Export) bool { return o.ID == e.ID })
}

// makeExport makes the file that is served, which outlives a power cut.
func (d *Disks) makeExport(ctx context.Context, e Export) error {
	if err := os.MkdirAll(d.exportDir(e), 0o700); err != nil {
		return err
	}
	o := overISCSI{Disks: d}
	if err := o.create(ctx, e.disk()); err != nil {
		return err
	}
	return syncFile(o.writable(e.disk()))
}

// beginExport records an export, and serves it. Its file is whole by then: of one that
// was cut off before, nothing is ever served.
func (d *Disks) beginExport(ctx context.Context, e Export) error {
	text, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	d.shares.Lock()
	defer d.shares.Unlock()
	path := filepath.Join(d.exportDir(e), exportFile)
	if err := renameio.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	if err := (overISCSI{Disks: d}).serve(ctx, e.disk()); err != nil {
		return errors.Join(err, os.Remove(path)) // nobody serves it again while it is taken back
	}
	return nil
}

// syncFile has a file's content outlive a power cut.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// undoTime bounds the taking back of an export.
const undoTime = 20 * time.Second

// exportFile is an export's record, in its folder beside the disk's file.
const exportFile = "export.json"

func (d *Disks) exportDir(e Export) string { return filepath.Join(d.Shares, "exports", e.ID) }

// freeUID is one that no export has, counted from the end of the range, while
// VMs' are counted from its begin.
func (d *Disks) freeUID(all []Export) uint32 {
	uid := d.LastUID
	for slices.ContainsFunc(all, func(e Export) bool { return e.UID == uid }) {
		uid--
	}
	return uid
}

// Exports are those that there are; beside an error, those whose records can be read.
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
			continue // taken back meanwhile
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

// Unexport takes an export back. One that somebody uses is taken only by force:
// the user's reads and writes fail from then on.
func (d *Disks) Unexport(ctx context.Context, name string, force bool) error {
	d.shares.Lock()
	defer d.shares.Unlock()
	all, err := d.Exports()
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(e Export) bool { return e.Name == name })
	if i < 0 {
		return fmt.Errorf("%w export %q", ErrUnknown, name)
	}
	ctx, cancel := context.WithTimeout(ctx, undoTime) // what hangs must not keep tgtd from others
	defer cancel()
	users, _, err := d.Users(ctx, all[i])
	if err != nil && !errors.Is(err, iscsi.ErrUnavailable) {
		return err
	}
	if len(users) > 0 && !force {
		return fmt.Errorf("export %s is %w by an initiator: end the VM first, or take it back by force", name, iscsi.ErrBusy)
	}
	if len(users) > 0 {
		if err := d.breakOff(ctx, all[i]); err != nil {
			return fmt.Errorf("take back export %s: %w", name, err)
		}
		return nil
	}
	if err := d.removeExport(ctx, all[i]); err != nil {
		return fmt.Errorf("take back export %s: %w", name, err)
	}
	return nil
}

// Users are the initiators that are logged in. Served is false for an export
// that tgtd does not have.
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

// Target is the iSCSI name of an export, Portal where all of them are.
func (d *Disks) Target(e Export) string { return overISCSI{Disks: d}.access(e.disk()).Name }

// Portal is where exports are reached.
func (d *Disks) Portal() string { return d.ISCSI.Daemon.Portal().String() }

// breakOff takes back an export under its user. The target stays, without its
// disk, until tgtd or the shim is restarted: a QEMU that finds no target waits for
// it and does not tell its guest.
func (d *Disks) breakOff(ctx context.Context, e Export) error {
	if err := d.ISCSI.Daemon.Break(ctx, d.Target(e)); err != nil {
		return err
	}
	if err := d.views.Hide(ctx, viewOf(e.disk())); err != nil {
		return err
	}
	if err := d.Unpacker.Release(ctx, e.ID); err != nil {
		return err
	}
	return d.removeFolder(e.ID)
}

// removeFolder removes an export's folder, its record first: what is left by a crash is
// no export.
func (d *Disks) removeFolder(id string) error {
	dir := filepath.Join(d.Shares, "exports", id)
	if err := os.Remove(filepath.Join(dir, exportFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(dir)
}

// removeExport takes back all of it, its record as soon as nothing else needs it.
func (d *Disks) removeExport(ctx context.Context, e Export) error {
	o := overISCSI{Disks: d}
	if err := o.unserve(ctx, e.disk()); err != nil {
		return err
	}
	if err := d.Unpacker.Release(ctx, e.ID); err != nil {
		return err
	}
	return d.removeFolder(e.ID)
}

// restoreExports serves exports, those with an id or all, that are not served any more.
func (d *Disks) restoreExports(ctx context.Context, id string) {
	d.shares.Lock()
	defer d.shares.Unlock()
	all, err := d.Exports()
	if err != nil {
		d.Views.Logger.Error("reading the exports failed", "error", err)
	}
	for _, e := range all {
		if id != "" && id != e.ID {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, undoTime)
		err := overISCSI{Disks: d}.serve(ctx, e.disk())
		cancel()
		if err != nil && ctx.Err() == nil {
			d.Views.Logger.Error("serving an export again failed", "export", e.Name, "error", err)
		}
	}
}

// releaseStrayExports gives back disks of exports that did not come to be, and removes
// their folders.
func (d *Disks) releaseStrayExports(ctx context.Context) error {
	d.shares.Lock()
	defer d.shares.Unlock()
	owners, err := d.Unpacker.Owners(ctx)
	if err != nil {
		return err
	}
	stray, err := d.strayExports(owners)
	if err != nil {
		return err
	}
	for _, id := range stray {
		if err := d.Unpacker.Release(ctx, id); err != nil {
			return err
		}
		if err := d.removeFolder(id); err != nil {
			return err
		}
	}
	return nil
}

// strayExports are the ids of exports that have a disk or a folder and no record. The
// caller holds shares.
func (d *Disks) strayExports(owners []string) ([]string, error) {
	folders, err := filepath.Glob(filepath.Join(d.Shares, "exports", exportPrefix+"*"))
	if err != nil {
		return nil, err
	}
	all, err := d.Exports()
	if err != nil {
		return nil, err
	}
	all = append(all, d.making...)
	for _, f := range folders {
		owners = append(owners, filepath.Base(f))
	}
	return slices.DeleteFunc(owners, func(id string) bool {
		return !IsExport(id) || slices.ContainsFunc(all, func(e Export) bool { return e.ID == id })
	}), nil
}
