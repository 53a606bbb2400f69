package domain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Hotplug attaches disks and network cards to running domains, and detaches them. The disk of a CD-ROM drive
// is its medium.
//
// QEMU gets the file of a disk as a descriptor, as at a start: it adds the descriptor to
// one of its sets, and opens the set by a name below /dev/fdset. libvirt passes no FD
// group to a QEMU that runs, and looks only whether a file of that name exists.
type Hotplug struct {
	conn *Connection
	// names is the folder in which libvirt finds the names of QEMU's sets.
	names string
}

// fdSets is the folder whose names QEMU takes for those of its sets of descriptors.
const fdSets = "/dev/fdset"

// firstSet is the number of a domain's first set for these disks. libvirt counts its own from 0.
const firstSet = 1 << 20

// noSlots is libvirt's text for [ErrNoPort], without a code.
const noSlots = "No more available PCI slots"

// PluggedDisk is a disk of a running domain.
type PluggedDisk struct {
	Spec vmspec.Disk
	// Layer is the disk's file or device, whose path only serves readers of errors.
	Layer Layer
	// Set numbers the disk's set of descriptors among the domain's, from 0.
	Set int
}

// Attach attaches a disk to a running domain. The file stays the caller's. After an
// error, also [ErrUnavailable] and [ErrNoPort], [Hotplug.Targets] says whether the disk is attached, and
// [Hotplug.Release] undoes the rest. The error is [ErrNotRunning] if the domain is shut off.
func (h *Hotplug) Attach(ctx context.Context, uuid string, d PluggedDisk, file *os.File) error {
	object := "domain " + uuid
	text, err := d.xml()
	if err != nil {
		return &failure{op: "attach a disk to", object: object, detail: err}
	}
	if err := h.name(d.Set); err != nil {
		return &failure{op: "attach a disk to", object: object, detail: err}
	}
	files, err := modes(d.Spec, file)
	if err != nil {
		return &failure{op: "attach a disk to", object: object, detail: err}
	}
	_, err = await(ctx, "attach a disk to", object, func() (struct{}, error) {
		defer files.close()
		return struct{}{}, do(context.WithoutCancel(ctx), h.conn, "attach a disk to", uuid, func(dom *libvirt.Domain) error {
			if d.Spec.CDROM {
				return d.insert(dom, files[""])
			}
			if err := prepare(dom, d.Spec); err != nil {
				return err
			}
			if err := addFiles(dom, firstSet+d.Set, files[""]); err != nil {
				return err
			}
			err := dom.AttachDeviceFlags(text, libvirt.DOMAIN_DEVICE_MODIFY_LIVE)
			if err != nil && strings.Contains(err.Error(), noSlots) {
				err = fmt.Errorf("%w: %w", ErrNoPort, err)
			}
			return err
		})
	})
	return err
}

// name makes the name of a set, which is an empty file of the node that QEMU never opens.
func (h *Hotplug) name(set int) error {
	if err := os.MkdirAll(h.names, 0o755); err != nil {
		return fmt.Errorf("create the folder of names for QEMU's descriptors: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(h.names, strconv.Itoa(firstSet+set)), os.O_CREATE|os.O_RDONLY, 0o400)
	if err != nil {
		return fmt.Errorf("create the name of a set of QEMU's descriptors: %w", err)
	}
	return f.Close()
}

// layer returns the disk's file by the name of its set.
func (d PluggedDisk) layer() Layer {
	layer := d.Layer
	layer.Path, layer.FDGroup = filepath.Join(fdSets, strconv.Itoa(firstSet+d.Set)), ""
	return layer
}

func (d PluggedDisk) xml() (string, error) {
	one, err := placed(d.Spec, disk(d.Spec, []Layer{d.layer()}))
	if err != nil {
		return "", err
	}
	return one.Marshal()
}

// Request asks the guest to release a disk, or the medium of a CD-ROM drive, by its target. It returns before the guest
// reacts, and the guest may ignore the request. A disk that is not attached is no error.
func (h *Hotplug) Request(ctx context.Context, uuid, target string) error {
	return do(ctx, h.conn, "detach a disk from", uuid, func(dom *libvirt.Domain) error {
		disks, err := disksOf(dom)
		if err != nil {
			return err
		}
		for _, d := range disks {
			if d.Target == nil || d.Target.Dev != target {
				continue
			}
			if isDrive(d) {
				return change(dom, d, nil)
			}
			return requestRelease(dom, &d)
		}
		return nil
	})
}

// requestRelease asks a guest to release a device.
func requestRelease(dom *libvirt.Domain, device libvirtxml.Document) error {
	text, err := device.Marshal()
	if err != nil {
		return err
	}
	err = dom.DetachDeviceFlags(text, libvirt.DOMAIN_DEVICE_MODIFY_LIVE)
	if errors.Is(err, libvirt.ERR_DEVICE_MISSING) {
		return nil // released since
	}
	return err
}

// Targets returns the targets of a running domain's disks, but for empty CD-ROM drives.
func (h *Hotplug) Targets(ctx context.Context, uuid string) (map[string]bool, error) {
	return onDomain(ctx, h.conn, "list the disks of", uuid, func(dom *libvirt.Domain) (map[string]bool, error) {
		disks, err := disksOf(dom)
		if err != nil {
			return nil, err
		}
		all := map[string]bool{}
		for _, d := range disks {
			if d.Target != nil && !empty(d) {
				all[d.Target.Dev] = true
			}
		}
		return all, nil
	})
}

// Release makes QEMU close the descriptors of a disk that is not attached, also of one that the domain
// started with. A set that QEMU does not have is no error. The error is [ErrPaused] where QEMU keeps them while
// the guest is paused, as before 9.1.
func (h *Hotplug) Release(ctx context.Context, uuid string, set int) error {
	return do(ctx, h.conn, "close the file of a disk of", uuid, func(dom *libvirt.Domain) error {
		if err := removeSet(dom, firstSet+set); err != nil {
			return err
		}
		return removeUnused(dom)
	})
}

func disksOf(dom *libvirt.Domain) ([]libvirtxml.DomainDisk, error) {
	d, err := liveXML(dom)
	if err != nil {
		return nil, err
	}
	return d.Devices.Disks, nil
}

func liveXML(dom *libvirt.Domain) (libvirtxml.Domain, error) {
	var d libvirtxml.Domain
	text, err := dom.GetXMLDesc(0)
	if err != nil {
		return d, err
	}
	if err := d.Unmarshal(text); err != nil {
		return d, fmt.Errorf("decode the domain's XML: %w", err)
	}
	if d.Devices == nil {
		d.Devices = &libvirtxml.DomainDeviceList{}
	}
	return d, nil
}

// prepare adds the VM's one SCSI controller for a SCSI disk, unless the domain has it. libvirt
// would add one of a model that few guests support. The disk's target must be free: the
// descriptors that its set has would be closed.
func prepare(dom *libvirt.Domain, spec vmspec.Disk) error {
	d, err := liveXML(dom)
	if err != nil {
		return err
	}
	for _, other := range d.Devices.Disks {
		if other.Target != nil && other.Target.Dev == spec.Target {
			return fmt.Errorf("target %s already exists", spec.Target)
		}
	}
	if spec.Bus != vmspec.BusSCSI {
		return nil
	}
	for _, c := range d.Devices.Controllers {
		if c.Type == "scsi" {
			return nil
		}
	}
	first := uint(0)
	text, err := (&libvirtxml.DomainController{Type: "scsi", Index: &first, Model: "virtio-scsi"}).Marshal()
	if err != nil {
		return err
	}
	if err := dom.AttachDeviceFlags(text, libvirt.DOMAIN_DEVICE_MODIFY_LIVE); err != nil {
		return fmt.Errorf("add a SCSI controller: %w", err)
	}
	return nil
}

// modes returns descriptors of a file for a set: QEMU opens a disk for reading first, and
// for writing when the guest's device is there, and takes the descriptor of that mode.
func modes(spec vmspec.Disk, file *os.File) (fdGroups, error) {
	flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0)
	if err != nil {
		return nil, fmt.Errorf("read the flags of the disk's file: %w", err)
	}
	reads, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), os.O_RDONLY|flags&unix.O_DIRECT, 0)
	if err != nil {
		return nil, fmt.Errorf("open the disk for reading: %w", err)
	}
	defer reads.Close()
	all := []*os.File{reads}
	if !spec.ReadOnly && !spec.CDROM {
		all = append(all, file)
	}
	return duplicate(map[string][]*os.File{"": all})
}

// command runs a command of QEMU's monitor with files, and returns QEMU's reply.
func command(dom *libvirt.Domain, name string, arguments map[string]any, files ...os.File) (string, error) {
	text, err := json.Marshal(struct {
		Execute   string         `json:"execute"`
		Arguments map[string]any `json:"arguments,omitempty"`
	}{name, arguments})
	if err != nil {
		return "", err
	}
	reply, returned, err := dom.QemuMonitorCommandWithFiles(string(text), files, 0)
	for _, f := range returned {
		f.Close()
	}
	if err != nil {
		return "", fmt.Errorf("QEMU's command %s: %w", name, err)
	}
	var failed struct {
		Error *struct {
			Desc string `json:"desc"`
		} `json:"error"`
	}
	if err := json.Unmarshal([]byte(reply), &failed); err != nil {
		return "", fmt.Errorf("decode QEMU's reply to %s: %w", name, err)
	}
	if failed.Error != nil {
		return "", fmt.Errorf("QEMU's command %s: %s", name, failed.Error.Desc)
	}
	return reply, nil
}
