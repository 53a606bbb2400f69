package guest_test

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/needs"
)

const up = `^nodevirt guest: up host=`

// tinyInfo is a part of what the page /cgi-bin/info says.
type tinyInfo struct {
	Hostname, BootID, InstanceID string
	CPUs                         int
	Memory                       int64
	Interfaces                   []struct {
		Name      string
		MTU       int
		Addresses []string
	}
	Routes, Resolv, Ports, AuthorizedKeys []string
	Disks                                 []struct {
		Name     string
		Size     int64
		ReadOnly bool
	}
}

func TestTiny(t *testing.T) {
	needs.Parts(t, "QEMU, a Debian mirror")
	disk, err := guest.Tiny(t.Context(), guest.Options{Log: os.Stderr})
	assert.NilError(t, err)
	seedDisk := seed(t, map[string]string{
		"meta-data": "instance-id: i-1\nlocal-hostname: \"seeded\"\npublic-keys:\n  - \"ssh-ed25519 AAAA one\"\n",
		"user-data": "#!/bin/sh\necho made by user data >/www/user-data\necho user data ran\n",
		"network-config": "ethernets:\n  eth9:\n    addresses:\n    - 10.9.9.2/24\n    match:\n      macaddress: 52:54:00:00:00:99\n    set-name: eth7\n" +
			"    nameservers:\n      addresses:\n      - 10.9.9.1\nversion: 2\n",
	})
	second := []string{"-netdev", "hubport,id=second,hubid=0", "-device", "virtio-net-pci,netdev=second,mac=52:54:00:00:00:99"}
	own := drive(overlay(t, disk), "qcow2")
	m := start(t, 128, slices.Concat(own, seedDisk, second)...)

	line := m.waitFor(up, 5*time.Minute)
	if !strings.HasPrefix(line, "nodevirt guest: up host=seeded ip=10.0.2.15 after ") {
		t.Errorf("console says %q", line)
	}
	if got := m.request("GET", "/", ""); got != "ip=10.0.2.15 host=seeded mtu=1500 dns=10.0.2.3\n" {
		t.Errorf("/ says %q", got)
	}
	m.waitFor("user data ran$", time.Minute) // the shell's prompt may stand before it
	if got := m.request("GET", "/user-data", ""); got != "made by user data\n" {
		t.Errorf("user data made %q", got)
	}
	first := m.checkInfo()
	m.checkEcho()
	if a, b := m.request("GET", "/cgi-bin/counter", ""), m.request("GET", "/cgi-bin/counter", ""); a != "1\n" || b != "2\n" {
		t.Errorf("the counter says %q, then %q", a, b)
	}
	if got := m.request("GET", "/cgi-bin/disk", ""); got != "" {
		t.Errorf("a fresh disk holds %q", got)
	}
	m.request("POST", "/cgi-bin/disk", "kept")
	m.execute("system_powerdown", nil, nil)
	m.waitFor("^nodevirt guest: poweroff$", 5*time.Minute)
	m.waitEnd()

	again := start(t, 80, own...) // the least memory that the package promises to boot in
	again.waitFor(up, 5*time.Minute)
	if got := again.request("GET", "/cgi-bin/disk", ""); got != "kept" {
		t.Errorf("after a restart the disk holds %q", got)
	}
	if second := again.info(); second.BootID == first.BootID || second.Hostname != "tiny" {
		t.Errorf("after a restart without a seed the guest says %+v", second)
	}
	again.request("GET", "/cgi-bin/poweroff", "")
	again.waitEnd()
}

func (m *machine) info() tinyInfo {
	m.t.Helper()
	var info tinyInfo
	text := m.request("GET", "/cgi-bin/info", "")
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		m.t.Fatalf("info: %v: %s", err, text)
	}
	return info
}

func (m *machine) checkInfo() tinyInfo {
	m.t.Helper()
	info := m.info()
	if info.Hostname != "seeded" || info.InstanceID != "i-1" || info.CPUs != 1 || info.Memory < 90<<20 || info.Memory > 128<<20 {
		m.t.Errorf("wrong machine: %+v", info)
	}
	if !slices.Equal(info.AuthorizedKeys, []string{"ssh-ed25519 AAAA one"}) {
		m.t.Errorf("keys %q", info.AuthorizedKeys)
	}
	if len(info.Interfaces) != 2 || info.Interfaces[0].MTU != 1500 || info.Interfaces[0].Addresses[0] != "10.0.2.15/24" ||
		info.Interfaces[1].Name != "eth7" || info.Interfaces[1].Addresses[0] != "10.9.9.2/24" {
		m.t.Errorf("interfaces %+v", info.Interfaces)
	}
	if !slices.Equal(info.Resolv, []string{"nameserver 10.0.2.3"}) || !strings.HasPrefix(info.Routes[0], "default via 10.0.2.2") {
		m.t.Errorf("resolv.conf %q, routes %q", info.Resolv, info.Routes)
	}
	if len(info.Disks) != 2 || info.Disks[0].Size != 64<<20 || info.Disks[0].ReadOnly || !info.Disks[1].ReadOnly {
		m.t.Errorf("disks %+v", info.Disks)
	}
	if !slices.Equal(info.Ports, []string{"org.qemu.guest_agent.0"}) {
		m.t.Errorf("virtio ports %q", info.Ports)
	}
	return info
}

func (m *machine) checkEcho() {
	m.t.Helper()
	conn, err := net.Dial("tcp", m.ports["7"])
	assert.NilError(m.t, err)
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte("echo\n")); err != nil {
		m.t.Fatal(err)
	}
	answer := make([]byte, 5)
	if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != "echo\n" {
		m.t.Errorf("echo answers %q, %v", answer, err)
	}
}

func TestTinyKernel(t *testing.T) {
	needs.Parts(t, "a Debian mirror")
	k, err := guest.TinyKernel(t.Context(), guest.Options{})
	assert.NilError(t, err)
	m := start(t, 128, "-kernel", k.Image, "-initrd", k.Initrd, "-append", guest.Cmdline+" nodevirt.tick")
	m.waitFor(up, 5*time.Minute)
	m.waitFor("^nodevirt guest: tick 2$", time.Minute)
	// A panic restarts the guest at once.
	m.request("GET", "/cgi-bin/panic", "")
	m.waitFor("sysrq triggered crash", time.Minute)
}

func TestTinyIsDeterministic(t *testing.T) {
	needs.Parts(t, "a Debian mirror")
	o := guest.Options{Cache: t.TempDir()}
	disk, err := guest.Tiny(t.Context(), o)
	assert.NilError(t, err)
	again, err := guest.Tiny(t.Context(), o)
	if err != nil || again != disk {
		t.Errorf("the second call returns %s, %v instead of %s", again, err, disk)
	}
	left, err := filepath.Glob(filepath.Join(o.Cache, ".*tmp*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
	elsewhere, err := guest.Tiny(t.Context(), guest.Options{})
	assert.NilError(t, err)
	if !slices.Equal(content(t, disk), content(t, elsewhere)) {
		t.Errorf("two builds from the same packages, %s and %s, differ", disk, elsewhere)
	}
}

func content(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	assert.NilError(t, err)
	return data
}
