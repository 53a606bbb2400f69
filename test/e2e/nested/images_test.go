//go:build nested

package nested

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/node/config"
)

// pushImages pushes the images that kubeadm names, and busybox, to where a mirror of their registries has them.
func pushImages(ctx context.Context, c *cluster.Cluster) error {
	kubeadm, err := built("kubeadm")
	if err != nil {
		return err
	}
	version, err := output(ctx, kubeadm, "version", "-o", "short")
	if err != nil {
		return err
	}
	list, err := output(ctx, kubeadm, "config", "images", "list", "--kubernetes-version", version)
	if err != nil {
		return err
	}
	o := c.Control().GuestOptions()
	for ref := range strings.FieldsSeq(list) {
		_, name, _ := strings.Cut(ref, "/")
		program, _, _ := strings.Cut(path.Base(name), ":")
		img, err := programImage(ctx, o, program)
		if err == nil {
			_, err = c.Push(ctx, name, img)
		}
		if err != nil {
			return fmt.Errorf("image %s: %w", ref, err)
		}
	}
	img, err := images.Busybox(ctx, o)
	if err == nil {
		_, err = c.Push(ctx, "library/busybox:1", img)
	}
	return err
}

// programImage is the image of a program of the control plane, or of each node.
func programImage(ctx context.Context, o guest.Options, program string) (v1.Image, error) {
	config := v1.Config{Env: []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}
	const folder = "usr/local/bin/"
	switch program {
	case "pause":
		return images.Pause(ctx, o)
	case "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy":
		from, err := built("kube")
		if err != nil {
			return nil, err
		}
		// Layers of the same content are pulled once.
		layers := []images.Layer{
			{Files: []images.File{{Name: folder + "kube", Mode: 0o755, From: from}}},
			{Files: []images.File{{Name: folder + program, Link: "kube"}}},
		}
		if program == "kube-proxy" {
			tools, err := images.Debian(ctx, o, "nftables")
			if err != nil {
				return nil, err
			}
			layers = append(layers, tools)
		}
		return images.FromFiles(config, layers...)
	}
	from, err := built(program)
	if err != nil {
		return nil, err
	}
	config.Entrypoint = []string{"/" + folder + program}
	return images.FromFiles(config, images.Layer{Files: []images.File{{Name: folder + program, Mode: 0o755, From: from}}})
}

// pushNode pushes the image of the nodes' disk that the example names.
func pushNode(ctx context.Context, c *cluster.Cluster) (err error) {
	dir, err := os.MkdirTemp("", "nodevirt-nested-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	payload, disk := filepath.Join(dir, "payload"), filepath.Join(dir, "disk.qcow2")
	if err := nodePrograms(ctx, c, payload); err != nil {
		return err
	}
	if err := guest.KubernetesNode(ctx, c.Control().GuestOptions(), payload, disk); err != nil {
		return err
	}
	img, err := images.RegistryDisk(disk, images.DiskOptions{})
	if err != nil {
		return err
	}
	_, err = c.Push(ctx, "kubernetes-node:1", img)
	return err
}

// nodePrograms fills a folder, /usr/local of the nodes, with their programs, and with the outer cluster's registry
// as the mirror of all others.
func nodePrograms(ctx context.Context, c *cluster.Cluster, dir string) error {
	certs := filepath.Join(dir, "etc", "containerd", "certs.d", "_default")
	for _, folder := range []string{filepath.Join(dir, "bin"), filepath.Join(dir, "sbin"), certs} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	mirror := config.Mirror(config.Node{Registry: c.RegistryAddress()})
	if err := os.WriteFile(filepath.Join(certs, "hosts.toml"), []byte(mirror), 0o644); err != nil {
		return err
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "crictl", "runc", "kube", "kubeadm"} {
		from, err := built(name)
		if err != nil {
			return err
		}
		if _, err := output(ctx, "cp", from, filepath.Join(dir, "bin")); err != nil {
			return err
		}
	}
	for _, name := range []string{"kubelet", "kubectl"} {
		if err := os.Symlink("kube", filepath.Join(dir, "bin", name)); err != nil {
			return err
		}
	}
	return nil
}

// built is the path of a program in the checkout's bin.
func built(name string) (string, error) {
	bin, err := node.CheckoutBin()
	return filepath.Join(bin, name), err
}

// output runs a program on this machine, and returns what it wrote to stdout.
func output(ctx context.Context, name string, args ...string) (string, error) {
	var stderr strings.Builder
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(name), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}
