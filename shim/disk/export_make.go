package disk

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"
)

// ExportRequest asks for an export.
type ExportRequest struct {
	Name string `json:"name"`
	// Image is one that this node has. Path chooses one of several disks in it; empty
	// is for the only one.
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

// reserveExport reserves a name, an id and a user for an export. Making it can take
// minutes, while other calls must be served.
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

// makeExport makes the file that is served, and syncs it.
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

// beginExport records an export whose file is complete, and serves it. An export that
// was cut off before is never served.
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
		return errors.Join(err, os.Remove(path)) // nobody serves it again while it is removed
	}
	return nil
}

// syncFile makes a file's content outlive a power cut.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// undoTime bounds the removal of an export.
const undoTime = 20 * time.Second
