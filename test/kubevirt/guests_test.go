//go:build kubevirt

package kubevirt

import (
	"context"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
)

// guests are the images that specs name, and the login that they expect of each.
var guests = []struct {
	image   string
	flavour guest.Flavour
	agent   bool
	folder  string // of the disk in the image
	media   int    // how many files the disk has as a CD
}{
	{"alpine-container-disk-demo", guest.Alpine, false, "disk", 4},
	{"cirros-container-disk-demo", guest.Cirros, false, "disk", 0},
	{"cirros-custom-container-disk-demo", guest.Cirros, false, "custom-disk", 0},
	{"alpine-with-test-tooling-container-disk", guest.Alpine, true, "disk", 0},
	{"fedora-with-test-tooling-container-disk", guest.Fedora, true, "disk", 0},
	{"fedora-realtime-container-disk", guest.Fedora, true, "disk", 0},
	{"virtio-container-disk", guest.Alpine, false, "disk", 27},
}

// pushTools pushes the image of the pods that specs start beside VMs, as a user who is not root, under its name
// vm-killer: busybox, bash and curl. Others are made of it.
func pushTools(ctx context.Context, c *cluster.Cluster) (v1.Image, error) {
	img, err := toolsImage(ctx, c)
	if err != nil {
		return nil, err
	}
	_, err = c.Push(ctx, "kubevirt/vm-killer:"+version, img)
	return img, err
}

func toolsImage(ctx context.Context, c *cluster.Cluster) (v1.Image, error) {
	o := c.Control().GuestOptions()
	img, err := images.Busybox(ctx, o)
	if err != nil {
		return nil, err
	}
	debian, err := guest.ProgramsOf(ctx, o, []string{"bash", "libtinfo6", "curl"}, "bash", "curl")
	if err != nil {
		return nil, err
	}
	netcat, err := guest.Netcat()
	if err != nil {
		return nil, err
	}
	files := []images.File{
		{Name: "usr/local/", Mode: 0o755}, {Name: "usr/local/bin/", Mode: 0o755},
		{Name: "usr/local/bin/nc", Mode: 0o755, Data: netcat}, // the busybox's own is a link
		{Name: "bin/bash", Mode: 0o755, Data: debian.Programs["bash"]},
		{Name: "usr/bin/curl", Mode: 0o755, Data: debian.Programs["curl"]},
	}
	for _, name := range []string{"bash", "cat", "echo", "gzip", "tar"} { // specs name them there
		files = append(files, images.File{Name: "usr/bin/" + name, Link: "../../bin/" + name})
	}
	for name, data := range debian.Libraries {
		if !slices.Contains([]string{"libc.so.6", "libresolv.so.2", "ld-linux-x86-64.so.2"}, name) { // the busybox has these
			files = append(files, images.File{Name: "lib/x86_64-linux-gnu/" + name, Mode: 0o755, Data: data})
		}
	}
	config := v1.Config{
		User: "1001", Cmd: []string{"bash"}, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"},
	}
	return images.Extend(img, config, images.Layer{Files: files})
}

// pushProgram pushes an image with a program of cmd, which make test-kubevirt builds.
func pushProgram(ctx context.Context, c *cluster.Cluster, base v1.Image, name, image string) error {
	bin, err := node.CheckoutBin()
	if err != nil {
		return err
	}
	img, err := images.Extend(base, v1.Config{Entrypoint: []string{"/" + name}, User: "1001", Env: []string{"PATH=/usr/bin:/bin"}},
		images.Layer{Files: []images.File{{Name: name, Mode: 0o755, From: filepath.Join(bin, "image", name)}}})
	if err != nil {
		return err
	}
	_, err = c.Push(ctx, "kubevirt/"+image+":"+version, img)
	return err
}

// pushKernel pushes the image whose kernel specs boot beside a VM's disks.
func pushKernel(ctx context.Context, c *cluster.Cluster) error {
	kernel, err := guest.KernelWithLogin(ctx, c.Control().GuestOptions(), guest.Alpine)
	if err != nil {
		return err
	}
	img, err := images.FromFiles(v1.Config{}, images.Layer{Files: []images.File{
		{Name: "boot/"}, {Name: "boot/vmlinuz-virt", From: kernel.Image}, {Name: "boot/initramfs-virt", From: kernel.Initrd},
	}})
	if err != nil {
		return err
	}
	_, err = c.Push(ctx, "kubevirt/alpine-ext-kernel-boot-demo:"+version, img)
	return err
}

func pushGuests(ctx context.Context, c *cluster.Cluster) error {
	for _, g := range guests {
		path, err := guest.TinyWithLogin(ctx, c.Control().GuestOptions(), g.flavour, g.agent)
		if err == nil && g.media > 0 {
			path, err = alsoCD(ctx, filepath.Dir(c.Kubeconfig()), path, g.media)
		}
		if err != nil {
			return err
		}
		img, err := images.FromFiles(v1.Config{}, images.Layer{Files: []images.File{
			{Name: g.folder + "/"}, {Name: g.folder + "/downloaded", From: path},
		}})
		if err != nil {
			return err
		}
		if _, err := c.Push(ctx, "kubevirt/"+g.image+":"+version, img); err != nil {
			return err
		}
	}
	return nil
}
