package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// reference starts domains as the shim makes them, but on plain files, through libvirt alone.
type reference struct {
	conn    *libvirt.Connect
	dir     string // of its files
	uid     int    // QEMU's
	domains []*domain
}

// domain is one that is started again and again.
type domain struct {
	against string // the row's name
	goal    float64
	text    string // XML
	dom     *libvirt.Domain

	define, create, resume report.Series // ms of each of libvirt's calls
}

// referenceTap is the reference's network card, which leads nowhere.
const referenceTap = "reference0"

// newReference starts a VM through the shim, copies its domain and removes it. close ends it.
func (r *rig) newReference(ctx context.Context, p *pod, image, disk string) (_ *reference, err error) {
	ref := &reference{dir: filepath.Join(r.Dir(), "reference")}
	if err := os.Mkdir(ref.dir, 0o711); err != nil {
		return nil, fmt.Errorf("make a folder for the reference: %w", err)
	}
	if err := copyFile(disk, ref.path("base.qcow2")); err != nil {
		return nil, err
	}
	if _, err := r.Output(ctx, "ip", "tuntap", "add", "dev", referenceTap, "mode", "tap", "vnet_hdr"); err != nil {
		return nil, err
	}
	id, err := p.run(ctx, "model", image)
	if err != nil {
		return nil, err
	}
	if ref.conn, err = libvirt.NewConnect(r.LibvirtURI()); err != nil {
		return nil, fmt.Errorf("connect to libvirt: %w", err)
	}
	if err := errors.Join(ref.model(), ref.overlay(ctx), p.end(ctx, id)); err != nil {
		return nil, errors.Join(err, ref.close())
	}
	return ref, nil
}

// model makes the reference's XML of that of the only domain.
func (ref *reference) model() error {
	all, err := ref.conn.ListAllDomains(0)
	if err != nil || len(all) != 1 {
		return fmt.Errorf("find the shim's domain among %d: %w", len(all), err)
	}
	defer all[0].Free()
	text, err := all[0].GetXMLDesc(libvirt.DOMAIN_XML_INACTIVE | libvirt.DOMAIN_XML_SECURE)
	if err != nil {
		return fmt.Errorf("read the shim's domain: %w", err)
	}
	var d libvirtxml.Domain
	if err := d.Unmarshal(text); err != nil {
		return fmt.Errorf("read the shim's domain: %w", err)
	}
	if _, err := fmt.Sscanf(d.SecLabel[0].Label, "+%d:", &ref.uid); err != nil {
		return fmt.Errorf("read the owner %q of the shim's domain: %w", d.SecLabel[0].Label, err)
	}
	ref.rewrite(&d)
	if err := ref.add(&domain{against: "of the same XML", goal: 1.3}, d); err != nil {
		return err
	}
	if d.QEMUCapabilities == nil {
		return nil
	}
	d.QEMUCapabilities = nil
	return ref.add(&domain{against: "without qemu:capabilities"}, d)
}

func (ref *reference) add(to *domain, d libvirtxml.Domain) (err error) {
	to.text, err = d.Marshal()
	ref.domains = append(ref.domains, to)
	return err
}

// rewrite puts plain files in the place of descriptors, and renames the domain.
func (ref *reference) rewrite(d *libvirtxml.Domain) {
	d.Name, d.UUID, d.Metadata = "reference", "", nil
	d.Devices.Emulator = "/usr/bin/qemu-system-x86_64" // the shim's own limits QEMU to the files of its VM
	d.QEMUCommandline = nil                            // names the UUID
	top := &d.Devices.Disks[0]
	top.Source.File = &libvirtxml.DomainDiskSourceFile{File: ref.path("overlay.qcow2")}
	top.BackingStore.Source.File = &libvirtxml.DomainDiskSourceFile{File: ref.path("base.qcow2")}
	d.Devices.Interfaces[0].Target.Dev = referenceTap
	serial := &d.Devices.Serials[0]
	serial.Source.UNIX.Path, serial.Log.File = ref.path("console.sock"), ref.path("console")
	d.Devices.Consoles = nil // made of the serial port by libvirt
}

func (ref *reference) path(name string) string { return filepath.Join(ref.dir, name) }

// overlay makes a new overlay, which is not timed.
func (ref *reference) overlay(ctx context.Context) error {
	path := ref.path("overlay.qcow2")
	cmd := exec.CommandContext(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", ref.path("base.qcow2"), path)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make the reference's overlay: %w: %s", err, out)
	}
	return os.Chown(path, ref.uid, ref.uid)
}

// side starts a domain, and removes it.
func (ref *reference) side(d *domain) side {
	return side{
		of:   "libvirt alone",
		do:   func(context.Context) error { return d.start(ref.conn) },
		tidy: func(ctx context.Context) error { return errors.Join(d.remove(), ref.overlay(ctx)) },
	}
}

func (d *domain) start(conn *libvirt.Connect) (err error) {
	for _, step := range []struct {
		name  string
		times *report.Series
		do    func() error
	}{
		{"define", &d.define, func() (err error) { d.dom, err = conn.DomainDefineXML(d.text); return err }},
		{"start", &d.create, func() error { return d.dom.CreateWithFlags(libvirt.DOMAIN_START_PAUSED) }},
		{"resume", &d.resume, func() error { return d.dom.Resume() }},
	} {
		begun := time.Now()
		if err := step.do(); err != nil {
			return fmt.Errorf("%s the reference: %w", step.name, err)
		}
		step.times.Add(milliseconds(time.Since(begun)))
	}
	return nil
}

// calls are the times of libvirt's calls, without those of the round that is not counted.
func (d *domain) calls() []report.Series {
	return []report.Series{
		{Of: "define", Samples: d.define.Samples[1:]},
		{Of: "start paused", Samples: d.create.Samples[1:]},
		{Of: "resume", Samples: d.resume.Samples[1:]},
	}
}

func (d *domain) remove() error {
	return errors.Join(d.dom.Destroy(), d.dom.Undefine(), d.dom.Free())
}

func (ref *reference) close() error {
	_, err := ref.conn.Close()
	return err
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		return errors.Join(fmt.Errorf("copy %s: %w", from, err), out.Close())
	}
	return out.Close()
}
