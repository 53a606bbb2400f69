package disk

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"
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

// Add serves a disk of an image.
func (x *Exports) Add(ctx context.Context, r ExportRequest) (_ Connection, err error) {
	e, err := x.reserve(r)
	if err != nil {
		return Connection{}, err
	}
	defer x.drop(e)
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
			defer cancel()
			err = fmt.Errorf("export %s: %w", e.Name, errors.Join(err, x.remove(ctx, e)))
		}
	}()
	if e.Disk, err = x.images.Acquire(ctx, e.ID, r.Image, r.Path); err != nil {
		return Connection{}, err
	}
	if err := x.makeFile(ctx, e); err != nil {
		return Connection{}, err
	}
	if err := x.begin(ctx, e); err != nil {
		return Connection{}, err
	}
	return x.connection(e), nil
}

// reserve reserves a name, an id and a user for an export. Making it can take
// minutes, while other calls must be served.
func (x *Exports) reserve(r ExportRequest) (Export, error) {
	name := r.Name
	if !shareName.MatchString(name) {
		return Export{}, fmt.Errorf("export %q: %w", name, ErrName)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	all, err := x.List()
	if err != nil {
		return Export{}, err
	}
	all = append(all, x.making...)
	if slices.ContainsFunc(all, func(e Export) bool { return e.Name == name }) {
		return Export{}, fmt.Errorf("export %s: %w", name, ErrExists)
	}
	random := make([]byte, 16)
	rand.Read(random) // never fails
	e := Export{Name: name, ID: exportPrefix + hex.EncodeToString(random), UID: x.freeUID(all), CreatedAt: time.Now(), Shareable: r.Shareable}
	x.making = append(x.making, e)
	return e, nil
}

// drop ends a reservation.
func (x *Exports) drop(e Export) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.making = slices.DeleteFunc(x.making, func(o Export) bool { return o.ID == e.ID })
}

// makeFile makes the file that is served, and syncs it.
func (x *Exports) makeFile(ctx context.Context, e Export) error {
	if err := x.files.make(e.ID); err != nil {
		return err
	}
	if err := x.served.create(ctx, e.disk()); err != nil {
		return err
	}
	return syncFile(x.served.writable(e.disk()))
}

// begin records an export whose file is complete, and serves it. An export that
// was cut off before is never served.
func (x *Exports) begin(ctx context.Context, e Export) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.files.record(e); err != nil {
		return err
	}
	if err := x.served.serve(ctx, e.disk()); err != nil {
		return errors.Join(err, x.files.removeRecord(e.ID)) // restore must not serve it while it is removed
	}
	return nil
}

// undoTime bounds the removal of an export.
const undoTime = 20 * time.Second
