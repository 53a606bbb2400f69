package cluster

import (
	"context"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
)

// PushSidecars pushes KubeVirt's programs for hook sidecars: the shim that runs programs as hooks, and under another
// name with the program of its example, which names a VM's board. `test/tools/build sidecars` builds them.
func (c *Cluster) PushSidecars(ctx context.Context, shim, example string) error {
	bin, err := node.CheckoutBin()
	if err != nil {
		return err
	}
	base, err := images.Busybox(ctx, c.Control().GuestOptions())
	if err != nil {
		return err
	}
	program := images.File{Name: "sidecar-shim", Mode: 0o755, From: filepath.Join(bin, "kubevirt-sidecar-shim")}
	hook := images.File{Name: "usr/bin/onDefineDomain", Mode: 0o755, From: filepath.Join(bin, "kubevirt-smbios-hook")}
	for name, files := range map[string][]images.File{shim: {program}, example: {program, hook}} {
		img, err := images.Extend(base, v1.Config{
			Entrypoint: []string{"/sidecar-shim"}, User: "1001", Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		}, images.Layer{Files: files})
		if err != nil {
			return err
		}
		if _, err := c.Push(ctx, name, img); err != nil {
			return err
		}
	}
	return nil
}
