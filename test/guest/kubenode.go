package guest

import (
	"context"
	"embed"
	"path/filepath"
)

// The files that are copied into the root file system, and the names of packages and units.
//
//go:embed all:kubenode
var kubenodeFiles embed.FS

// KubernetesNode makes a qcow2 disk at path with Debian 12 as images for kubeadm have it: systemd, cloud-init, the
// guest agent, CNI's plug-ins, and units of containerd and the kubelet. Their programs, kubeadm and kubectl are
// the caller's: the files of the folder payload are under /usr/local, and containerd looks for registries in
// etc/containerd/certs.d there.
//
// The guest needs virtio for its disk. cloud-init reads NoCloud and ConfigDrive seeds. A root shell without a
// password is on the serial console.
func KubernetesNode(ctx context.Context, o Options, payload, path string) error {
	b := bookworm{name: "kubenode", files: kubenodeFiles, rootSize: 6144 * mebibyte, inputs: []string{
		"linux-image-cloud-amd64", "cloud-init", "containernetworking-plugins", "nftables", "qemu-guest-agent", "systemd",
	}}
	dir, err := b.build(ctx, o, func(l layout, dir string) error {
		return makeRawDisk(ctx, l, filepath.Join(dir, "disk.raw"))
	})
	if err != nil {
		return err
	}
	return withPayload(ctx, filepath.Join(dir, "disk.raw"), payload, path)
}
