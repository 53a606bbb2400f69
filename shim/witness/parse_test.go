package witness

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/shim/domain/landlock"
)

func TestContainer(t *testing.T) {
	id := strings.Repeat("a1", 32)
	for groups, want := range map[string]string{
		"0::/kubepods/besteffort/pod1/" + id + "\n":                                                id,
		"0::/kubepods.slice/kubepods-pod1.slice/nodevirt-" + id + ".scope\n":                       id,
		"12:pids:/x/" + id + "\n4:memory:/x/" + id + "\n0::/\n":                                    id,
		"0::/x/" + id + "/vcpu0\n":                                                                 id,
		"0::/kubepods.slice/cri-containerd-" + id + ".scope\n":                                     "",
		"1:name=systemd:/x/cri-o-" + id + ".scope/nodevirt-" + id + ".scope\n":                     "",
		"0::/machine.slice/machine-qemu\\x2d1\\x2ddefault.scope\n":                                 "",
		"0::/system.slice/containerd.service/kubepods-pod1.slice:cri-containerd:" + id[:40] + "\n": "",
		"": "",
	} {
		if got, _, foreign := container(groups, "0::/\n"); got != want || foreign != strings.Contains(groups, "/cri-") {
			t.Errorf("%q: %q, of another runtime: %v", groups, got, foreign)
		}
	}
	outer := strings.Repeat("b2", 32)
	if got, _, _ := container("0::/docker/"+outer+"/pod1/"+id+"\n", "0::/docker/"+outer+"/system\n"); got != id {
		t.Errorf("on a node in a container: %q", got)
	}
	if got, _, foreign := container("0::/docker-"+outer+".scope/pod1/"+id+"\n", "0::/docker-"+outer+".scope/system\n"); got != id || foreign {
		t.Errorf("on a node in a container with systemd: %q, of another runtime: %v", got, foreign)
	}
	if _, parent, _ := container("5:x:/y\n4:memory:/kubepods/pod1/"+id+"\n", ""); parent != "/kubepods/pod1" {
		t.Errorf("the pod's group is %q", parent)
	}
}

func TestStatus(t *testing.T) {
	s, err := parseStatus("Name:\tqemu\nState:\tZ (zombie)\nUid:\t5001\t5001\t5001\t5001\nThreads:\t3\n")
	if err != nil || s.uid != 5001 || !s.zombie || s.dead() {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := parseStatus("Name:\tqemu-system-x86\nUid:\t1\nNSpid:\t77\t1\n"); err != nil || s.name != "qemu-system-x86" || !s.nested {
		t.Errorf("of a container: %+v, %v", s, err)
	}
	if s, err := parseStatus("NSpid:\t77\n"); err != nil || s.nested {
		t.Errorf("of the node: %+v, %v", s, err)
	}
	if _, err := parseStatus("Uid:\tx\n"); err == nil {
		t.Error("a user that is no number")
	}
}

// TestEmulatorsName: all that starts or is QEMU, whichever distribution built it.
func TestEmulatorsName(t *testing.T) {
	for name, want := range map[string]bool{
		"/usr/bin/qemu-system-x86_64": true, "/usr/bin/qemu-system-aarch64 (deleted)": true, "/usr/libexec/qemu-kvm": true,
		"/nix/store/1/bin/.qemu-system-x86_64-wrapped": true, "/usr/bin/" + landlock.Name: true, "qemu-system-x86": true,
		"/usr/bin/qemu-img": false, "/qemu-system-x86_64/sh": false, "qemu-storage-da": false, "/usr/libexec/virtiofsd": false,
	} {
		if IsEmulator(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}

// TestAnEndingQEMU: one that no longer has memory, but has files open, is known by its name.
func TestAnEndingQEMU(t *testing.T) {
	for name, want := range map[string]bool{"qemu-system-x86": true, "qemu-img": false} {
		if got := (status{name: name}).emulates(t.TempDir()); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestNames: a guest that has taken over its QEMU writes what it likes.
func TestNames(t *testing.T) {
	for cmdline, want := range map[string]string{
		"qemu\x00-name\x00guest=default_web_01.a-b,debug-threads=on\x00-uuid\x007f0c\x00": "default_web_01.a-b 7f0c",
		"qemu\x00-name\x00guest=x; rm -rf /\x00":                                          " ",
		"qemu\x00guest=../../etc/x\x00":                                                   " ",
		"qemu\x00guest=-h\x00":                                                            " ",
		"qemu\x00guest=" + strings.Repeat("a", 300) + "\x00":                              " ",
		"qemu\x00-uuid": " ",
	} {
		if name, uuid := names(bytes.Split([]byte(cmdline), []byte{0})); name+" "+uuid != want {
			t.Errorf("%q: %q, %q", cmdline, name, uuid)
		}
	}
}

// TestRemoteDisks: command lines as libvirt 9 and 11 write them.
func TestRemoteDisks(t *testing.T) {
	const (
		iscsi  = `{"driver":"iscsi","portal":"10.0.0.2:3260","target":"iqn.2026-11.com.example:disk","lun":2,"transport":"tcp","user":"me","password-secret":"s0","node-name":"libvirt-2-storage","auto-read-only":true,"discard":"unmap"}`
		format = `{"node-name":"libvirt-2-format","read-only":false,"discard":"unmap","driver":"raw","file":"libvirt-2-storage"}`
		reads  = `{"node-name":"libvirt-2-format","read-only":true,"discard":"unmap","driver":"raw","file":"libvirt-2-storage"}`
		rbd    = `{"driver":"rbd","pool":"vms","image":"disk","server":[{"host":"10.0.0.3","port":"3300"},{"host":"10.0.0.4","port":"3300"}],"user":"nodevirt","node-name":"libvirt-1-storage","read-only":false}`
	)
	lun := RemoteDisk{Target: "iqn.2026-11.com.example:disk", LUN: 2}
	readLUN := lun
	readLUN.ReadOnly = true
	image := RemoteDisk{Pool: "vms", Image: "disk", Monitors: []RemoteServer{{"10.0.0.3", "3300"}, {"10.0.0.4", "3300"}}}
	for cmdline, want := range map[string][]RemoteDisk{
		"qemu\x00-blockdev\x00" + iscsi + "\x00-blockdev\x00" + format + "\x00-blockdev\x00" + rbd + "\x00": {lun, image},
		"qemu\x00-blockdev\x00" + iscsi + "\x00-blockdev\x00" + reads + "\x00":                              {readLUN},
		"qemu\x00-blockdev\x00" + format + "\x00-blockdev\x00{\x00-blockdev":                                nil,
		"qemu\x00-name\x00" + iscsi + "\x00":                                                                nil,
	} {
		if got := remoteDisks(bytes.Split([]byte(cmdline), []byte{0})); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v", cmdline, got)
		}
	}
}

// TestRemoteDisksAreBounded: a process that only has QEMU's name cannot make a look at the node hold much.
func TestRemoteDisksAreBounded(t *testing.T) {
	var args [][]byte
	add := func(node string) { args = append(args, []byte("-blockdev"), []byte(node)) }
	add(`{"driver":"rbd","image":"servers","server":[{}` + strings.Repeat(",{}", 10_000) + `]}`)
	add(`{"driver":"rbd","image":"long","server":[{}` + strings.Repeat(",{}", maxBlockdev/3) + `]}`)
	for range 2 * maxBlockdevs {
		add(`{"driver":"iscsi"}`)
	}
	disks := remoteDisks(args)
	if len(disks) != maxBlockdevs || len(disks[0].Monitors) != maxMonitors || disks[1].Target != "" || disks[1].Image != "" {
		t.Errorf("%d disks, the first with %d monitors, and then %+v", len(disks), len(disks[0].Monitors), disks[1])
	}
}
