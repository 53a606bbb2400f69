package bench

import (
	"context"
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
		"(O_DIRECT, libaio), on 256 MiB of its disk, half a second each in turn; guests' clocks.")
}

// ioFile compares a guest's disk of mode file with that of QEMU alone, on an overlay as qemu-img
// makes it.
func (r *rig) ioFile(ctx context.Context) (s report.Section, err error) {
	s.Title = "A guest's disk of mode file, against QEMU alone"
	s.Notes = ioNotes("QEMU alone: -drive if=virtio of an overlay, as qemu-img create makes it, on a copy of the file.")
	return s, r.guestIO(ctx, &s, vmspec.ModeFile, ioGoal, func(disk string) (string, error) {
		overlay := filepath.Join(r.Dir(), "alone-overlay.qcow2")
		err := qemuImg(ctx, "create", "-q", "-f", "qcow2", "-b", disk, "-F", "qcow2", overlay)
		return "if=virtio,format=qcow2,file=" + overlay, err
	})
}

// ioRaw compares a guest's disk of mode raw with that of QEMU alone, on a raw file.
func (r *rig) ioRaw(ctx context.Context) (s report.Section, err error) {
	s.Title = "A guest's disk of mode raw, against QEMU alone"
	s.Notes = ioNotes("QEMU alone: -drive if=virtio of a raw file, as qemu-img convert makes it.")
	return s, r.guestIO(ctx, &s, vmspec.ModeRaw, ioGoal, func(disk string) (string, error) {
		raw := filepath.Join(r.Dir(), "alone.raw")
		err := qemuImg(ctx, "convert", "-f", "qcow2", "-O", "raw", disk, raw)
		return "if=virtio,format=raw,file=" + raw, err
	})
}

// ioISCSI compares a guest's disk over iSCSI with that of QEMU alone over a plain tgtd, both on the
// same file system.
func (r *rig) ioISCSI(ctx context.Context) (s report.Section, err error) {
	s.Title = "A guest's disk of mode iscsi, against QEMU alone with a plain tgtd, on " + r.fileSystem()
	s.Notes = ioNotes("QEMU alone: -drive if=virtio of iscsi://…, a raw file that a tgtd with its defaults serves.")
	stop := func() {}
	defer func() { stop() }()
	return s, r.guestIO(ctx, &s, vmspec.ModeISCSI, 0, func(disk string) (string, error) {
		raw := filepath.Join(r.Dir(), "alone.raw")
		err := qemuImg(ctx, "convert", "-f", "qcow2", "-O", "raw", disk, raw)
		if err == nil {
			stop, err = r.tgtdAlone(ctx, raw)
		}
		return "if=virtio,format=raw,file=iscsi://" + alonePortal + "/" + aloneTarget + "/1", err
	})
}

// guestIO boots a guest on a disk of a mode, and one of QEMU alone, with the -drive that is made of
// the same disk's file, and compares what they read and write.
func (r *rig) guestIO(
	ctx context.Context, s *report.Section, mode vmspec.Mode, goal float64, drive func(disk string) (string, error),
) error {
	disk, err := r.largeGuest(ctx, loadSize)
	if err != nil {
		return err
	}
	image, err := r.pushDisk(ctx, "io:1", disk)
	if err != nil {
		return err
	}
	value, err := drive(disk)
	if err != nil {
		return fmt.Errorf("make a disk for QEMU alone: %w", err)
	}
	alone, err := r.bareGuest(ctx, 0, loadMemory, value)
	if err != nil {
		return err
	}
	defer alone.stop()
	p, err := r.diskPod(ctx, "io-"+string(mode), mode)
	if err != nil {
		return err
	}
	p.memory = loadMemory
	if _, err := p.run(ctx, "guest", image); err != nil {
		return err
	}
	ip, err := p.ip(ctx)
	if err != nil {
		return err
	}
	measured, err := r.loadedGuest(ctx, "mode "+string(mode), ip)
	if err != nil {
		return err
	}
	baseline, err := r.loadedGuest(ctx, "QEMU alone", alone.ip)
	if err != nil {
		return err
	}
	s.Rows, err = r.compareLoads(ctx, goal, baseline, measured)
	return err
}
