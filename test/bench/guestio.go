package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/bench/report"
)

// ioGoal is the least part of the throughput of QEMU alone that a guest's local disk has.
const ioGoal = 0.95

// ioNotes are how guests' reads and writes are measured.
func ioNotes(alone ...string) []string {
	return append(alone,
		"Both have the same memory, processor, card and cgroup's limit. Requests past the guest's page cache",
		"(O_DIRECT, libaio), on 256 MiB of its disk, a quarter of a second each in turn; guests' clocks.",
		fmt.Sprintf("%d guests of each, one after the other.", boots))
}

// ioFile compares a guest's disk of mode file with that of QEMU alone, on an overlay as qemu-img
// makes it.
func (r *rig) ioFile(ctx context.Context) (s report.Section, err error) {
	s.Title = "A guest's disk of mode file, against QEMU alone"
	s.Notes = ioNotes("QEMU alone: -drive if=virtio of an overlay, as qemu-img create makes it, on a copy of the file.")
	return s, r.guestIO(ctx, &s, vmspec.ModeFile, ioGoal, func(ctx context.Context, disk string) ([]string, func(), error) {
		overlay := filepath.Join(r.Dir(), "alone-overlay.qcow2")
		err := qemuImg(ctx, "create", "-q", "-f", "qcow2", "-b", disk, "-F", "qcow2", overlay)
		return drive("if=virtio,format=qcow2,file=" + overlay), func() {}, err
	})
}

// ioRaw compares a guest's disk of mode raw with that of QEMU alone, on a raw file.
func (r *rig) ioRaw(ctx context.Context) (s report.Section, err error) {
	s.Title = "A guest's disk of mode raw, against QEMU alone"
	s.Notes = ioNotes("QEMU alone: -drive if=virtio of a raw file, as qemu-img convert makes it.")
	return s, r.guestIO(ctx, &s, vmspec.ModeRaw, ioGoal, func(ctx context.Context, disk string) ([]string, func(), error) {
		raw, err := r.rawAlone(ctx, disk)
		return drive("if=virtio,format=raw,file=" + raw), func() {}, err
	})
}

// rawAlone is a raw file of a disk for QEMU alone, replacing the last one. Nothing of it is in the page cache: what
// a guest reads fills the memory of the guest's group, as it does for a VM.
func (r *rig) rawAlone(ctx context.Context, disk string) (path string, err error) {
	path = filepath.Join(r.Dir(), "alone.raw")
	return path, uncached(ctx, disk, path)
}

// uncached writes a disk to a raw file, past the page cache.
func uncached(ctx context.Context, disk, path string) error {
	return qemuImg(ctx, "convert", "-f", "qcow2", "-O", "raw", "-t", "none", disk, path)
}

// ioISCSI compares a guest's disk over iSCSI with that of QEMU alone over a plain tgtd, both on the
// same file system.
func (r *rig) ioISCSI(ctx context.Context) (s report.Section, err error) {
	s.Title = "A guest's disk of mode iscsi, against QEMU alone with a plain tgtd, on " + r.fileSystem()
	s.Notes = ioNotes("QEMU alone: -drive if=virtio of iscsi://…, a raw file that a tgtd with its defaults serves.")
	return s, r.guestIO(ctx, &s, vmspec.ModeISCSI, 0, func(ctx context.Context, disk string) ([]string, func(), error) {
		raw, err := r.rawAlone(ctx, disk)
		if err != nil {
			return nil, nil, err
		}
		stop, err := r.tgtdAlone(ctx, raw)
		return drive("if=virtio,format=raw,file=iscsi://" + alonePortal + "/" + aloneTarget + "/1"), stop, err
	})
}

// boots is how many guests of each side there are, one after the other. Two of the same kind differ
// by up to a tenth for as long as they run.
const boots = 3

// alone makes of a disk's file what QEMU alone has of it: its arguments for the disk, and what ends it.
type alone func(ctx context.Context, disk string) (args []string, stop func(), err error)

// drive is a disk by the value of -drive.
func drive(value string) []string { return []string{"-drive", value} }

// guestIO boots guests on a disk of a mode, and guests of QEMU alone, and compares what they read and
// write.
func (r *rig) guestIO(ctx context.Context, s *report.Section, mode vmspec.Mode, goal float64, other alone) error {
	disk, err := r.largeGuest(ctx, loadSize)
	if err != nil {
		return err
	}
	image, err := r.pushDisk(ctx, "io:1", disk)
	if err != nil {
		return err
	}
	p, err := r.diskPod(ctx, "io-"+string(mode), mode)
	if err != nil {
		return err
	}
	s.Rows = loadRows("QEMU alone", "mode "+string(mode), goal)
	return r.pairs(ctx, s.Rows, p, image, disk, other)
}

// pairs boots guests of a pod, and guests of QEMU alone on a disk, and adds to the rows what they do.
func (r *rig) pairs(ctx context.Context, rows []report.Row, p *pod, image, disk string, other alone) error {
	p.memory = loadMemory
	for boot := range boots {
		if err := r.onePair(ctx, rows, boot, p, image, disk, other); err != nil {
			return err
		}
	}
	return nil
}

// onePair boots a guest of each side, and adds to the rows what they do.
func (r *rig) onePair(ctx context.Context, rows []report.Row, boot int, p *pod, image, disk string, other alone) (err error) {
	args, stop, err := other(ctx, disk)
	if err != nil {
		return fmt.Errorf("make a disk for QEMU alone: %w", err)
	}
	defer stop()
	bare, err := r.bareGuest(ctx, boot, loadMemory, args)
	if err != nil {
		return err
	}
	defer bare.stop()
	id, err := p.run(ctx, "guest", image)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.end(context.WithoutCancel(ctx), id)) }()
	ip, err := p.ip(ctx)
	if err != nil {
		return err
	}
	measured, err := r.loadedGuest(ctx, rows[0].Measured.Of, ip)
	if err != nil {
		return err
	}
	baseline, err := r.loadedGuest(ctx, rows[0].Baseline.Of, bare.ip)
	if err != nil {
		return err
	}
	return r.compareLoads(ctx, rows, baseline, measured)
}
