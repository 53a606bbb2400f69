package domainxml_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirtxml"

	"github.com/nodevirt/nodevirt/shim/hooks/domainxml"
)

const domain = `<domain type="kvm">
  <name>a</name>
  <sysinfo type="smbios"><system><entry name="serial">1</entry></system></sysinfo>
  <os><type arch="x86_64">hvm</type><smbios mode="sysinfo"></smbios></os>
  <features><acpi></acpi></features>
  <cpu mode="custom"><model>Nehalem</model><numa><cell id="0" memory="1"></cell></numa></cpu>
  <on_crash>destroy</on_crash>
  <devices>
    <emulator>/usr/bin/emulator</emulator>
    <disk type="file"><source file="/a"></source><target dev="vda"></target></disk>
    <disk type="file"><source file="/b"></source><target dev="vdb"></target></disk>
  </devices>
  <qemu:commandline xmlns:qemu="http://libvirt.org/schemas/domain/QEMU/1.0"><qemu:arg value="-x"></qemu:arg></qemu:commandline>
</domain>`

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name, old, new, path string // path is empty for a change that is allowed
	}{
		{"nothing", "", "", ""},
		{"a comment and a header", "<domain type", "<?xml version='1.0'?><!-- x --><domain type", ""},
		{"SMBIOS", "<system>", "<baseBoard><entry name='manufacturer'>Radical &lt;Edward&gt;</entry></baseBoard><system>", ""},
		{"a feature", "<acpi>", "<kvm><hidden state='on'></hidden></kvm><acpi>", ""},
		{"no features", "<features><acpi></acpi></features>", "", ""},
		{"the CPU", "Nehalem</model>", "Penryn</model><feature policy='require' name='vmx'></feature>", ""},
		{"a clock", "<on_crash>", "<clock offset='utc'></clock><on_crash>", ""},
		{"I/O limits of the second disk", "<source file=\"/b\"></source>",
			"<source file='/b'></source><iotune><total_iops_sec>10</total_iops_sec></iotune>", ""},
		{"the prefix of a namespace", "qemu", "q", ""},

		{"a file", `file="/b"`, `file="/etc/shadow"`, "devices/disk[2]/source/@file"},
		{"another attribute", `type="file"><source file="/a"`, `type="file" device="lun"><source file="/a"`, "devices/disk/@device"},
		{"a disk", "<emulator>", "<disk><source file='/c'></source></disk><emulator>", "devices/disk"},
		{"a device at the end", "</devices>", "<hostdev></hostdev></devices>", "devices/hostdev"},
		{"no disk", `<disk type="file"><source file="/b"></source><target dev="vdb"></target></disk>`, "", "devices/disk[2]"},
		{"the emulator", "/usr/bin/emulator<", "/bin/sh<", "devices/emulator/."},
		{"QEMU's options", `value="-x"`, `value="-y"`, "commandline/arg/@value"},
		{"QEMU's options at a path that may change", "<acpi>",
			`<arg xmlns="http://libvirt.org/schemas/domain/QEMU/1.0" value="-y"></arg><acpi>`, "features"},
		{"features of another namespace", "<on_crash>", `<features xmlns="http://x"></features><on_crash>`, "features"},
		{"more of QEMU's options", "</domain>",
			`<commandline xmlns="http://libvirt.org/schemas/domain/QEMU/1.0"></commandline></domain>`, "commandline[2]"},
		{"a core dump", "destroy", "coredump-destroy", "on_crash/."},
		{"a file in SMBIOS", `<sysinfo type="smbios">`, `<sysinfo type="fwcfg"><entry name="opt/a" file="/etc/shadow"></entry></sysinfo><sysinfo type="smbios">`, "sysinfo"},
		{"the node's SMBIOS", `mode="sysinfo"`, `mode="host"`, "os/smbios"},
		{"a loader", "<type arch", "<loader>/x</loader><type arch", "os/loader"},
		{"NUMA", `memory="1"`, `memory="1" memAccess="shared"`, "cpu"},
		{"the domain's type", `type="kvm"`, `type="xen"`, "@type"},
		{"another document", "domain", "network", "."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reply := domain
			if tt.old != "" {
				reply = strings.ReplaceAll(domain, tt.old, tt.new)
			}
			got, err := domainxml.Check(domain, reply)
			if tt.path == "" {
				if err != nil {
					t.Fatal(err)
				}
				if _, err := domainxml.Check(reply, got); err != nil {
					t.Errorf("the result differs from the reply: %v\n%s", err, got)
				}
				return
			}
			refused, ok := errors.AsType[*domainxml.ChangedError](err)
			if !ok || refused.Path != tt.path {
				t.Errorf("error %v, want one of %s", err, tt.path)
			}
		})
	}
}

// TestStrange refuses what is no domain.
func TestStrange(t *testing.T) {
	for name, reply := range map[string]string{
		"nothing":     "",
		"text":        "hello",
		"not closed":  strings.TrimSuffix(domain, "</domain>"),
		"two domains": domain + domain,
		"an entity":   `<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/shadow">]>` + domain,
		"too deep":    strings.Replace(domain, "<acpi></acpi>", strings.Repeat("<a>", 100)+strings.Repeat("</a>", 100), 1),
		"too many":    strings.Replace(domain, "<acpi></acpi>", strings.Repeat("<a></a>", 30_000), 1),
		"twice":       strings.Replace(domain, `mode="sysinfo"`, `mode="sysinfo" mode="host"`, 1),
	} {
		if got, err := domainxml.Check(domain, reply); err == nil {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestIgnition: the file that a guest reads by its firmware device stays what it is.
func TestIgnition(t *testing.T) {
	with := strings.Replace(domain, `<sysinfo type="smbios">`,
		`<sysinfo type="fwcfg"><entry name="opt/a" file="/own"></entry></sysinfo><sysinfo type="smbios">`, 1)
	if _, err := domainxml.Check(with, with); err != nil {
		t.Error(err)
	}
	if got, err := domainxml.Check(with, strings.Replace(with, "/own", "/etc/shadow", 1)); err == nil {
		t.Errorf("another file: %s", got)
	}
}

// TestLibvirtXML: a sidecar may decode and encode a domain with libvirt's Go package.
func TestLibvirtXML(t *testing.T) {
	files, err := filepath.Glob("../../domain/testdata/*.xml")
	if err != nil || len(files) == 0 {
		t.Fatal("no domains", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d libvirtxml.Domain
		if err := d.Unmarshal(string(text)); err != nil {
			t.Fatal(file, err)
		}
		d.Title = "<&>"
		reply, err := d.Marshal()
		if err != nil {
			t.Fatal(file, err)
		}
		got, err := domainxml.Check(string(text), reply)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		var back libvirtxml.Domain
		if err := back.Unmarshal(got); err != nil || back.Title != "<&>" {
			t.Errorf("%s: title %q, %v", file, back.Title, err)
		}
		back.Title = ""
		again, err := back.Marshal()
		if err != nil || strings.TrimSpace(again) != strings.TrimSpace(string(text)) {
			t.Errorf("%s: %v: the domain changed: %s", file, err, cmp.Diff(string(text), again))
		}
	}
}

// FuzzCheck never panics, and what it accepts is accepted again.
func FuzzCheck(f *testing.F) {
	f.Add(domain)
	f.Add("<domain/>")
	f.Fuzz(func(t *testing.T, reply string) {
		got, err := domainxml.Check(domain, reply)
		if err != nil {
			return
		}
		if again, err := domainxml.Check(domain, got); err != nil || len(again) != len(got) {
			t.Errorf("%v\n%s\n%s", err, got, again)
		}
	})
}
