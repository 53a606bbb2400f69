package domain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"libvirt.org/go/libvirt"
)

// ChangesBitmap is the name of the bitmap of a pull backup that follows a checkpoint: what the guest
// has written between both. NBD clients ask for it as qemu:dirty-bitmap:NAME.
const ChangesBitmap = "nodevirt-changes"

const (
	// listenerName names the listening socket in QEMU's monitor.
	listenerName = "nodevirt-backup"
	// maxReaders bounds the connections of a pull backup's readers.
	maxReaders = 16
)

// ServedDisk is a disk of a pull backup that clients can read.
type ServedDisk struct {
	Target string
	// Name is the disk's for the clients.
	Name string
	// Changes says that clients can read [ChangesBitmap] of the disk.
	Changes bool
}

// Serve has QEMU's NBD server serve disks of a pull backup on a listening socket, in place of a
// former one. No client can write. The socket stays the caller's. [Backups.End] stops the server.
// The error is [ErrChanged] if the backup's jobs do not run.
func (b *Backups) Serve(ctx context.Context, uuid string, disks []ServedDisk, listener *os.File) error {
	const op = "serve a backup of"
	copies, err := duplicate(map[string][]*os.File{"": {listener}})
	if err != nil {
		return &failure{op: op, object: "domain " + uuid, detail: err}
	}
	_, err = await(ctx, op, "domain "+uuid, func() (struct{}, error) {
		defer copies.close()
		return struct{}{}, do(context.WithoutCancel(ctx), b.conn, op, uuid, func(dom *libvirt.Domain) error {
			return serve(ctx, dom, disks, copies[""][0])
		})
	})
	return err
}

// serve gives QEMU no command after its caller has left: another call may stop the server then.
func serve(ctx context.Context, dom *libvirt.Domain, disks []ServedDisk, listener *os.File) error {
	run := func(name string, arguments map[string]any, files ...os.File) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, err := command(dom, name, arguments, files...)
		return err
	}
	if err := copying(dom, disks); err != nil {
		return err
	}
	_ = run("nbd-server-stop", nil) // fails if there is no server; one without disks is not seen otherwise
	if err := stopServing(dom); err != nil {
		return err
	}
	if err := run("getfd", map[string]any{"fdname": listenerName}, *listener); err != nil {
		return err
	}
	if err := run("nbd-server-start", map[string]any{
		"addr":            map[string]any{"type": "fd", "data": map[string]any{"str": listenerName}},
		"max-connections": maxReaders,
	}); err != nil {
		return err
	}
	for _, d := range disks {
		export := map[string]any{
			"type": "nbd", "id": backupNode(d.Target), "node-name": backupNode(d.Target), "name": d.Name, "writable": false,
		}
		if d.Changes {
			export["bitmaps"] = []string{ChangesBitmap}
		}
		if err := run("block-export-add", export); err != nil {
			return errors.Join(err, stopServing(dom))
		}
	}
	if err := copying(dom, disks); err != nil {
		return errors.Join(err, stopServing(dom))
	}
	return nil
}

// copying returns an error unless QEMU keeps what the guest overwrites of the disks.
func copying(dom *libvirt.Domain, disks []ServedDisk) error {
	jobs, err := jobsOf(dom)
	if err != nil {
		return err
	}
	for _, d := range disks {
		if job, has := jobs[backupNode(d.Target)]; !has || job.Status != jobRunning {
			return fmt.Errorf("disk %s: %w: its job does not run", d.Target, ErrChanged)
		}
	}
	return nil
}

// stopServing ends the connections of a pull backup's readers, and the server.
func stopServing(dom *libvirt.Domain) error {
	served, err := servedBy(dom)
	if err != nil || !served {
		return err
	}
	if _, err := command(dom, "nbd-server-stop", nil); err != nil {
		return err
	}
	if served, err = servedBy(dom); err == nil && served {
		err = errors.New("QEMU still serves a backup")
	}
	return err
}

// servedBy reports whether QEMU serves disks of a backup.
func servedBy(dom *libvirt.Domain) (bool, error) {
	exports, err := query[[]struct {
		ID string `json:"id"`
	}](dom, "query-block-exports", nil)
	if err != nil {
		return false, err
	}
	for _, e := range exports {
		if strings.HasPrefix(e.ID, backupNode("")) {
			return true, nil
		}
	}
	return false, nil
}

// frozenChanges returns the actions that copy the bitmap of a checkpoint to [ChangesBitmap], which
// records no more.
func frozenChanges(node, since string) []map[string]any {
	return []map[string]any{
		action("block-dirty-bitmap-add", map[string]any{
			"node": node, "name": ChangesBitmap, "granularity": backupGranularity, "persistent": false, "disabled": true,
		}),
		action("block-dirty-bitmap-merge", map[string]any{"node": node, "target": ChangesBitmap, "bitmaps": []string{since}}),
	}
}

// removeChanges removes what frozenChanges has added.
func removeChanges(dom *libvirt.Domain) error {
	all, err := drivesOf(dom)
	if err != nil {
		return err
	}
	for _, d := range all {
		for _, bitmap := range d.bitmaps {
			if bitmap.Name != ChangesBitmap {
				continue
			}
			if _, err := command(dom, "block-dirty-bitmap-remove", map[string]any{"node": d.node, "name": bitmap.Name}); err != nil {
				return err
			}
		}
	}
	return nil
}

// stalled reports whether an error of a disk has stopped the guest.
func stalled(dom *libvirt.Domain) (bool, error) {
	status, err := query[struct {
		Status string `json:"status"`
	}](dom, "query-status", nil)
	return status.Status == "io-error", err
}
