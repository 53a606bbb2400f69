//go:build machine

package machine

import (
	"context"
	"embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	imagename "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
)

// The names of the images in the payload. pauseImage is what containerd's configuration names.
const (
	pauseImage   = "registry.example.com/pause:1"
	tinyImage    = "registry.example.com/tiny:1"
	busyboxImage = "registry.example.com/busybox:1"
)

// laterVersion is that of packages to upgrade to, with the same programs.
const laterVersion = "v99.0.0"

// programs are those of a Kubernetes node that is not nodevirt's own.
func programs() []string {
	return []string{"containerd", "containerd-shim-runc-v2", "ctr", "crictl", "runc", "kube"}
}

// rootFiles are those of a node that kubeadm has set up, but for its credentials.
//
//go:embed all:root
var rootFiles embed.FS

// payload fills a folder with what the machine gets beside Debian's packages: the programs in bin, the
// archives of images in images, nodevirt's packages in packages, and those of a later version in later,
// and configuration files in root.
func payload(ctx context.Context, o guest.Options, pki, dir string) error {
	bin, err := node.CheckoutBin()
	if err != nil {
		return err
	}
	for _, name := range programs() {
		if err := copyFile(filepath.Join(bin, name), filepath.Join(dir, "bin", name), 0o755); err != nil {
			return err
		}
	}
	built := filepath.Join(bin, "packages")
	if err := copyPackages(built, filepath.Join(dir, "packages")); err != nil {
		return err
	}
	next := dir + "-later"
	defer func() { _ = os.RemoveAll(next) }()
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(bin), "deploy", "packages", "build"), next, filepath.Join(built, "programs"))
	cmd.Env = append(os.Environ(), "VERSION="+laterVersion)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build packages of a later version: %w: %s", err, out)
	}
	if err := copyPackages(next, filepath.Join(dir, "later")); err != nil {
		return err
	}
	if err := os.CopyFS(dir, rootFiles); err != nil {
		return fmt.Errorf("copy the machine's files: %w", err)
	}
	for from, to := range map[string]string{"ca.crt": "pki/ca.crt", name + ".kubeconfig": "kubelet.conf"} {
		if err := copyFile(filepath.Join(pki, from), filepath.Join(dir, "root/etc/kubernetes", to), 0o600); err != nil {
			return err
		}
	}
	return payloadImages(ctx, o, filepath.Join(dir, "images"))
}

// copyPackages copies the two packages of a folder.
func copyPackages(from, to string) error {
	debs, err := filepath.Glob(filepath.Join(from, "*.deb"))
	if err != nil {
		return err
	}
	if len(debs) != 2 {
		return fmt.Errorf("find the packages: %d .deb files in %s; run make packages-deb", len(debs), from)
	}
	for _, deb := range debs {
		if err := copyFile(deb, filepath.Join(to, filepath.Base(deb)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func payloadImages(ctx context.Context, o guest.Options, dir string) error {
	disk, err := guest.Tiny(ctx, o)
	if err != nil {
		return err
	}
	for ref, build := range map[string]func() (v1.Image, error){
		pauseImage:   func() (v1.Image, error) { return images.Pause(ctx, o) },
		busyboxImage: func() (v1.Image, error) { return images.Busybox(ctx, o) },
		tinyImage:    func() (v1.Image, error) { return images.RegistryDisk(disk, images.DiskOptions{}) },
	} {
		img, err := build()
		if err != nil {
			return err
		}
		tag, err := imagename.NewTag(ref)
		if err != nil {
			return fmt.Errorf("name of an image: %w", err)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make the folder of images: %w", err)
		}
		file := filepath.Join(dir, filepath.Base(tag.RepositoryStr())+".tar")
		if err := tarball.WriteToFile(file, tag, img); err != nil {
			return fmt.Errorf("write %s: %w", file, err)
		}
	}
	return nil
}

// copyFile copies a file, and makes its folder.
func copyFile(from, to string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("copy into the machine: %w", err)
	}
	defer func() { _ = in.Close() }()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("copy into the machine: %w", err)
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return fmt.Errorf("copy into the machine: %w", err)
	}
	defer func() { _ = out.Close() }()
	if _, err := io.Copy(out, in); err != nil {
		return fmt.Errorf("copy %s into the machine: %w", from, err)
	}
	return out.Close()
}
