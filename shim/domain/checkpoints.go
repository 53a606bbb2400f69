package domain

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"libvirt.org/go/libvirt"
)

// BackupSource is what QEMU knows of a disk that a backup can copy.
type BackupSource struct {
	// Size is the disk's size in bytes.
	Size int64
	// Checkpoints are those since which all writes to the disk are known. A disk that has grown since
	// a checkpoint does not have it any more.
	Checkpoints []string
}

// Sources returns the disks of a running domain by their targets.
func (b *Backups) Sources(ctx context.Context, uuid string) (map[string]BackupSource, error) {
	return onDomain(ctx, b.conn, "list the checkpoints of", uuid, func(dom *libvirt.Domain) (map[string]BackupSource, error) {
		all, err := drivesOf(dom)
		if err != nil {
			return nil, err
		}
		sources := map[string]BackupSource{}
		for target, d := range all {
			sources[target] = BackupSource{Size: d.size, Checkpoints: d.checkpoints()}
		}
		return sources, nil
	})
}

// Keep forgets the checkpoints of a running domain that are not in a list. The caller keeps the one
// of a backup that has not ended.
func (b *Backups) Keep(ctx context.Context, uuid string, checkpoints []string) error {
	return do(ctx, b.conn, "remove the checkpoints of", uuid, func(dom *libvirt.Domain) error {
		all, err := drivesOf(dom)
		if err != nil {
			return err
		}
		for _, d := range all {
			for _, bitmap := range d.bitmaps {
				checkpoint, _, ours := parseBitmap(bitmap.Name)
				if !ours || slices.Contains(checkpoints, checkpoint) {
					continue
				}
				if _, err := command(dom, "block-dirty-bitmap-remove", map[string]any{"node": d.node, "name": bitmap.Name}); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// bitmapPrefix begins the names of the dirty bitmaps that are checkpoints.
const bitmapPrefix = "nodevirt:"

// bitmapName is the name of the bitmap of a checkpoint. It has the disk's size at the checkpoint,
// in bytes.
func bitmapName(checkpoint string, size int64) string {
	return fmt.Sprintf("%s%d:%s", bitmapPrefix, size, checkpoint)
}

// parseBitmap returns what the name of a bitmap says. Bitmaps of others are not ours.
func parseBitmap(name string) (checkpoint string, size int64, ours bool) {
	rest, ours := strings.CutPrefix(name, bitmapPrefix)
	length, checkpoint, found := strings.Cut(rest, ":")
	size, err := strconv.ParseInt(length, 10, 64)
	return checkpoint, size, ours && found && err == nil
}

// bitmap is one of QEMU's dirty bitmaps.
type bitmap struct {
	Name         string `json:"name"`
	Recording    bool   `json:"recording"`
	Inconsistent bool   `json:"inconsistent"`
}

// drive is a disk as QEMU has it.
type drive struct {
	node    string
	size    int64
	bitmaps []bitmap
}

// checkpoints returns the checkpoints since which QEMU knows all writes.
func (d drive) checkpoints() []string {
	var all []string
	for _, b := range d.bitmaps {
		if name, size, ours := parseBitmap(b.Name); ours && size == d.size && b.Recording && !b.Inconsistent {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

func (d drive) has(checkpoint string) bool { return slices.Contains(d.checkpoints(), checkpoint) }

// drivesOf returns QEMU's disks by libvirt's targets.
func drivesOf(dom *libvirt.Domain) (map[string]drive, error) {
	disks, err := disksOf(dom)
	if err != nil {
		return nil, err
	}
	all, err := query[[]struct {
		Device   string `json:"qdev"`
		Inserted *struct {
			Node    string   `json:"node-name"`
			Bitmaps []bitmap `json:"dirty-bitmaps"`
			Image   struct {
				Size int64 `json:"virtual-size"`
			} `json:"image"`
		} `json:"inserted"`
	}](dom, "query-block", nil)
	if err != nil {
		return nil, err
	}
	drives := map[string]drive{}
	for _, d := range disks {
		if d.Target == nil || d.Alias == nil {
			continue
		}
		for _, one := range all {
			// QEMU names a device by its path if it is a part of another one.
			if one.Inserted != nil && slices.Contains(strings.Split(one.Device, "/"), d.Alias.Name) {
				drives[d.Target.Dev] = drive{node: one.Inserted.Node, size: one.Inserted.Image.Size, bitmaps: one.Inserted.Bitmaps}
			}
		}
	}
	return drives, nil
}
