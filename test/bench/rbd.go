package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/bench/report"
	"github.com/nodevirt/nodevirt/test/ceph"
)

// onCeph makes the shim allow disks on the node's Ceph.
func onCeph(c map[string]any) {
	c["disks"] = map[string]any{"network": true, "ceph_networks": []string{ceph.Network}}
}

// The images of both sides, of the same content.
const (
	rbdOwn   = "own"
	rbdAlone = "alone"
)

// ioRBD compares a guest's disk on RBD with that of QEMU alone, both on one Ceph.
func (r *rig) ioRBD(ctx context.Context) (s report.Section, err error) {
	s.Title = "A guest's disk on RBD, against QEMU alone with librbd"
	s.Notes = ioNotes("QEMU alone: -drive if=virtio,cache=none of rbd:…, another image of the same content.",
		"Ceph: one monitor and one OSD of this machine, one copy, on "+r.fileSystem()+".")
	dir, err := os.MkdirTemp(r.Dir(), "ceph-")
	if err != nil {
		return s, err
	}
	c, err := ceph.Start(ctx, r.Node, dir)
	if c != nil {
		defer func() { err = errors.Join(err, c.Stop(context.WithoutCancel(ctx))) }()
	}
	if err != nil {
		return s, err
	}
	disk, err := r.largeGuest(ctx, loadSize)
	if err != nil {
		return s, err
	}
	for _, image := range []string{rbdOwn, rbdAlone} {
		if err := c.Import(ctx, image, "qcow2", disk); err != nil {
			return s, err
		}
	}
	image, err := r.halted(ctx) // the VM boots from the PVC
	if err != nil {
		return s, err
	}
	p, err := r.rbdPod(ctx, c)
	if err != nil {
		return s, err
	}
	s.Rows = loadRows("QEMU alone", "RBD", ioGoal)
	return s, r.pairs(ctx, s.Rows, p, image, disk, func(context.Context, string) ([]string, func(), error) {
		return drive("if=virtio,format=raw,cache=none,file=" + c.Drive(rbdAlone)), func() {}, nil
	})
}

// rbdPod runs a pod whose VM boots from an image, as the controller describes it.
func (r *rig) rbdPod(ctx context.Context, c *ceph.Cluster) (*pod, error) {
	const secret = "root-ceph"
	disks, err := json.Marshal(map[string]vmspec.NetworkDisk{"root": {
		PVC: "data", Volume: "pv", SecretName: "ceph", SecretMount: secret,
		RBD: &vmspec.RBDVolume{Monitors: []string{ceph.Address}, Pool: ceph.Pool, Image: rbdOwn, User: ceph.User},
	}})
	if err != nil {
		return nil, fmt.Errorf("describe the disk: %w", err)
	}
	config, err := r.podConfig("io-rbd")
	if err != nil {
		return nil, err
	}
	config.Annotations = map[string]string{
		vmspec.AnnotationNetworkDisks: string(disks),
		vmspec.AnnotationVMI: `{"domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}},
			"volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": "data"}}]}`,
	}
	folder, err := r.mountedSecret(secret, "key", c.Key)
	if err != nil {
		return nil, err
	}
	p, err := runPod(ctx, r.shim, config, "vm")
	if err != nil {
		return nil, err
	}
	p.mounts = []*cri.Mount{{ContainerPath: "/volumes/" + secret, HostPath: folder, Readonly: true}}
	return p, nil
}

// mountedSecret makes a folder as a kubelet does for a Secret with one key.
func (r *rig) mountedSecret(name, key, value string) (folder string, err error) {
	folder = filepath.Join(r.Dir(), "volumes", "kubernetes.io~secret", name)
	return folder, errors.Join(
		os.MkdirAll(filepath.Join(folder, "..1"), 0o700),
		os.Symlink("..1", filepath.Join(folder, "..data")),
		os.WriteFile(filepath.Join(folder, "..1", key), []byte(value), 0o600),
	)
}
