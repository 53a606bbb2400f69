package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/bench/report"
	"github.com/nodevirt/nodevirt/test/loopdev"
)

// pvcVMI describes a VM that boots from a PVC, with or without an I/O thread.
const pvcVMI = `{"domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}, "dedicatedIOThread": %t}]}},
	"volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "data"}}]}`

// ioPVC compares a guest's disk on a PVC with that of QEMU alone on a copy: a block device, or the
// file disk.img; with or without an I/O thread.
func ioPVC(block, thread bool) func(*rig, context.Context) (report.Section, error) {
	return func(r *rig, ctx context.Context) (s report.Section, err error) {
		what, device := "disk.img on a PVC", "virtio-blk-pci,drive=d"
		if block {
			what = "block device of a PVC"
		}
		s.Title = "A guest's " + what + ", against QEMU alone"
		if thread {
			s.Title += ", both with an I/O thread"
			device += ",iothread=io"
		}
		s.Notes = ioNotes("QEMU alone: -device " + device + " of a -drive, on a copy.")
		disk, err := r.largeGuest(ctx, loadSize)
		if err != nil {
			return s, err
		}
		image, err := r.halted(ctx) // the VM boots from the PVC
		if err != nil {
			return s, err
		}
		config, err := r.podConfig("io-pvc")
		if err != nil {
			return s, err
		}
		config.Annotations = map[string]string{vmspec.AnnotationVMI: fmt.Sprintf(pvcVMI, thread)}
		p, err := runPod(ctx, r.shim, config, "vm")
		if err != nil {
			return s, err
		}
		alone, end, err := r.volumes(ctx, p, disk, block)
		if err != nil {
			return s, err
		}
		s.Rows = loadRows("QEMU alone", what, ioGoal)
		err = r.pairs(ctx, s.Rows, p, image, disk, func(context.Context, string) ([]string, func(), error) {
			return []string{
				"-object", "iothread,id=io", "-device", device,
				"-drive", "if=none,id=d,format=raw,file=" + alone,
			}, func() {}, nil
		})
		return s, errors.Join(err, end())
	}
}

// volumes makes two copies of a disk: one for a pod, as the volume of its PVC, and one for QEMU alone.
func (r *rig) volumes(ctx context.Context, p *pod, disk string, block bool) (alone string, end func() error, err error) {
	folder := filepath.Join(r.Dir(), "pvc")
	if err := os.Mkdir(folder, 0o755); err != nil {
		return "", nil, fmt.Errorf("make a volume: %w", err)
	}
	own := filepath.Join(folder, "disk.img")
	if err := uncached(ctx, disk, own); err != nil {
		return "", nil, err
	}
	if alone, err = r.rawAlone(ctx, disk); err != nil {
		return "", nil, err
	}
	if !block {
		p.mounts = []*cri.Mount{{ContainerPath: "/volumes/root", HostPath: folder}}
		return alone, func() error { return nil }, nil
	}
	var devices []*os.File
	end = func() (err error) {
		for _, d := range devices {
			err = errors.Join(err, d.Close())
		}
		return err
	}
	for _, file := range []string{own, alone} {
		device, err := loop(file)
		if err != nil {
			return "", nil, errors.Join(err, end())
		}
		devices = append(devices, device)
	}
	p.devices = []*cri.Device{{ContainerPath: "/dev/root", HostPath: devices[0].Name(), Permissions: "mrw"}}
	return devices[1].Name(), end, nil
}

// loop makes a file a block device, which goes when it is closed.
func loop(file string) (*os.File, error) {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return loopdev.Attach(f, unix.LO_FLAGS_AUTOCLEAR|unix.LO_FLAGS_DIRECT_IO)
}

// origin compares the first use of an image's disk on a PVC with qemu-img alone.
func (r *rig) origin(ctx context.Context) (s report.Section, err error) {
	s.Title = fmt.Sprintf("An image's disk on a new PVC: CreateContainer, %d MiB of data, on %s", contentSize>>20, r.fileSystem())
	s.Notes = []string{"qemu-img alone: convert -W -m 16 -t writeback of the same file: what is on a PVC has reached its disk."}
	config, err := r.podConfig("origin")
	if err != nil {
		return s, err
	}
	config.Annotations = map[string]string{vmspec.AnnotationDiskOrigin: "root=disk"}
	p, err := runPod(ctx, r.shim, config, "vm")
	if err != nil {
		return s, err
	}
	folder := filepath.Join(r.Dir(), "pvc")
	p.mounts = []*cri.Mount{{ContainerPath: "/volumes/root", HostPath: folder}}
	for _, f := range formats() {
		path, err := r.contentDisk(ctx, f, virtualSize)
		if err != nil {
			return s, err
		}
		image, err := r.pushDisk(ctx, "origin-"+f.name+":1", path)
		if err != nil {
			return s, err
		}
		first := p.createSide("first use", image)
		first.prepare = func(context.Context) error { return os.Mkdir(folder, 0o755) }
		remove := first.tidy
		first.tidy = func(ctx context.Context) error { return errors.Join(remove(ctx), os.RemoveAll(folder)) }
		times, err := turns(ctx, r.diskRounds(), r.convertSide(path, "-t", "writeback"), first)
		if err != nil {
			return s, err
		}
		s.Rows = append(s.Rows, report.Row{Name: f.name, Unit: "ms", Kind: report.Ratio, Goal: 1.05, Baseline: times[0], Measured: times[1]})
		if err := os.Remove(path); err != nil {
			return s, err
		}
	}
	return s, nil
}
