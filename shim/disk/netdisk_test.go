package disk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// secretOfFiles is a mounted Secret.
func secretOfFiles(t *testing.T, name string, files map[string]string) vmspec.MountedSecret {
	t.Helper()
	dir := mountOf(t, files)
	if err := os.Symlink(".", filepath.Join(dir, "..data")); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
	return vmspec.MountedSecret{Name: name, Folder: dir}
}

// iscsiDisk is a PVC of a target whose second portal answers.
func iscsiDisk(t *testing.T) vmspec.Disk {
	t.Helper()
	return vmspec.Disk{
		Name: "d", Source: vmspec.SourceISCSI,
		Secret: secretOfFiles(t, "chap", map[string]string{"node.session.auth.username": "me", "node.session.auth.password": "hunter2"}),
		Network: &vmspec.NetworkDisk{PVC: "data", Volume: "pv1", SecretName: "chap", SecretMount: "d-chap", ISCSI: &vmspec.ISCSIVolume{
			Portals: []string{"10.0.0.1:3260", "10.0.0.2:3260"}, Target: "iqn.2026-11.com.example:disk", LUN: 1,
		}},
	}
}

// rbdDisk is a PVC of Ceph, of whose monitors two answer.
func rbdDisk(t *testing.T) vmspec.Disk {
	t.Helper()
	return vmspec.Disk{
		Name: "d", Source: vmspec.SourceRBD, Secret: secretOfFiles(t, "ceph", map[string]string{"key": "ZGVjb2RlZA=="}),
		Network: &vmspec.NetworkDisk{PVC: "data", Volume: "pv1", SecretName: "ceph", SecretMount: "d-ceph", RBD: &vmspec.RBDVolume{
			Monitors: []string{"10.0.0.9:3300", "10.0.0.3:3300", "mon.example.com:3300"}, Pool: "vms", Image: "disk", User: "nodevirt",
		}},
	}
}

// TestOneVMOnATarget: a target's disk is one VM's on this node, also if two PVCs name it by
// other portals, or an import.
func TestOneVMOnATarget(t *testing.T) {
	n := newNode(t)
	none := func(string, expand.Progress) {}
	same := iscsiDisk(t)
	same.Network.PVC, same.Network.Volume, same.Network.ISCSI.Portals = "other", "pv2", []string{"10.0.0.2:3260"}
	first, second := n.container(t, "c1", iscsiDisk(t)), n.container(t, "c2", same)
	if err := errors.Join(n.Maker.Create(t.Context(), first, none), n.Maker.Create(t.Context(), second, none)); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Attachments.Attach(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	const words = "PVC other (PersistentVolume pv2, iSCSI target iqn.2026-11.com.example:disk, LUN 1, at 10.0.0.2:3260): in use by another VM"
	if _, err := n.Attachments.Attach(t.Context(), second); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), words) {
		t.Errorf("the second start: %v", err)
	}
	i := theImport("data")
	i.Target = same.Network.ISCSI.Target
	if err := n.Imports.Add(i); err != nil {
		t.Fatal(err)
	}
	imported := n.container(t, "c3", vmspec.Disk{Name: "i", Source: vmspec.SourceImport, Import: "data"})
	if err := n.Maker.Create(t.Context(), imported, none); !errors.Is(err, ErrInUse) {
		t.Errorf("an import of the target: %v", err)
	}
	next := newNodeIn(t, n.dir) // the shim that runs next
	first.State = record.Running
	if err := next.Maker.Recover(first); err != nil {
		t.Error(err)
	}
	if _, err := next.Attachments.Attach(t.Context(), second); !errors.Is(err, ErrInUse) {
		t.Errorf("with the next shim: %v", err)
	}
	if err := n.Attachments.Detach(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Attachments.Attach(t.Context(), second); err != nil {
		t.Errorf("after the first: %v", err)
	}
}

// TestBadNetworkDisks: the errors name the PVC, and no password.
func TestBadNetworkDisks(t *testing.T) {
	for _, make := range []func(*testing.T) vmspec.Disk{iscsiDisk, rbdDisk} {
		n := newNode(t)
		d := make(t)
		if err := os.RemoveAll(d.Secret.Folder); err != nil {
			t.Fatal(err)
		}
		acquire := func(want error, words ...string) {
			t.Helper()
			_, err := n.Maker.Acquire(t.Context(), "c1", "shop", []vmspec.Disk{d}, nil)
			for _, w := range append(words, `disk "d": PVC data (PersistentVolume pv1, `) {
				if err == nil || want != nil && !errors.Is(err, want) || !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "hunter2") {
					t.Errorf("%v; want %q", err, w)
				}
			}
		}
		if d.Network.ISCSI != nil {
			acquire(nil, "read Secret chap")
		}
		if d.Network.RBD != nil {
			n.answers["mon.example.com:3300"] = "10.9.0.1:3300"
			acquire(errCephNetwork, "10.9.0.1:3300: ", "disks.ceph_networks")
		}
		clear(n.answers)
		acquire(ErrNoPortal, "dial ", "no route")
		n.Maker.kinds[d.Source] = row{networkContent{}, n.Maker.kinds[d.Source].kind}
		acquire(ErrNetworkOff, "disks.network")
	}
}

// TestTargetWentAway: a start says so at once.
func TestTargetWentAway(t *testing.T) {
	n := newNode(t)
	r := n.container(t, "c1", iscsiDisk(t))
	if err := n.Maker.Create(t.Context(), r, func(string, expand.Progress) {}); err != nil {
		t.Fatal(err)
	}
	clear(n.answers)
	if _, err := n.Attachments.Attach(t.Context(), r); !errors.Is(err, ErrNoPortal) || !strings.Contains(err.Error(), "PVC data") {
		t.Error(err)
	}
	if err := n.Attachments.Detach(t.Context(), r); err != nil {
		t.Error(err)
	}
}
