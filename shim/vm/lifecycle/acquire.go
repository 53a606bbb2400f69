package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/disk"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// acquire translates the request and finds the image's disk. For an image without
// a disk it does not report what is wrong with the request.
func (c *creator) acquire(ctx context.Context, id string, pod *runtimeapi.PodSandboxConfig, config *runtimeapi.ContainerConfig) (vmspec.Spec, imageunpack.Disk, error) {
	what := subject(config)
	spec, specErr := vmspec.FromCRI(pod, config)
	spec = spec.WithMode(c.mode)
	begun := time.Now()
	found, err := c.images.Acquire(ctx, id, config.GetImage().GetImage(), diskPath(spec))
	c.metrics.Acquired(time.Since(begun), err)
	required := vmspec.VMContainer(pod.GetAnnotations()) != ""
	switch {
	case errors.Is(err, imageunpack.ErrNoDisk) && !required:
		return spec, found, fmt.Errorf("%s: %w: %w", what, vmerrors.ErrNotVM, err)
	case errors.Is(err, imageunpack.ErrNoDisk):
		return spec, found, fmt.Errorf("%s: %w: %w: annotation %s says that it is a VM's: "+
			"build the image with a disk there, or change the annotation",
			what, vmerrors.ErrInvalid, err, vmspec.AnnotationVMContainer)
	case errors.Is(err, imageunpack.ErrUnusable):
		return spec, found, fmt.Errorf("%s: %w: %w", what, vmerrors.ErrInvalid, err)
	case err != nil:
		c.release(ctx, id, spec) // what it could not undo when containerd went away
		return spec, found, fmt.Errorf("%s: %w", what, err)
	case specErr != nil:
		specErr = fmt.Errorf("pod %s/%s: %w: %w",
			pod.GetMetadata().GetNamespace(), pod.GetMetadata().GetName(), vmerrors.ErrInvalid, specErr)
		c.release(ctx, id, spec)
		return spec, found, specErr
	}
	return spec, found, nil
}

// subject names the container in an error about its image. The kubelet names the
// image by its id; the pod's author knows it by the name in the pod.
func subject(config *runtimeapi.ContainerConfig) string {
	text := fmt.Sprintf("container %q", config.GetMetadata().GetName())
	if said := config.GetImage().GetUserSpecifiedImage(); said != "" && said != config.GetImage().GetImage() {
		text += fmt.Sprintf(" of image %q", said)
	}
	return text
}

// diskPath is which of the image's disks the spec asks for.
func diskPath(s vmspec.Spec) string {
	for _, d := range s.Disks {
		if d.Source == vmspec.SourceImage {
			return d.Path
		}
	}
	return ""
}

// imageOf asks containerd for the names of an image.
func (c *creator) imageOf(ctx context.Context, id string) (record.Image, error) {
	reply, err := c.store.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: id}})
	if err != nil {
		return record.Image{}, fmt.Errorf("ask containerd for image %s: %w", id, err)
	}
	image := record.Image{ID: id}
	if tags := reply.GetImage().GetRepoTags(); len(tags) > 0 {
		image.Tag = tags[0]
	}
	if digests := reply.GetImage().GetRepoDigests(); len(digests) > 0 {
		image.Ref = digests[0]
	}
	return image, nil
}

// holdDisks finds out what the disks of a container are made of. If the pod does
// not say how they are attached, a CD's image is a CD.
func (c *creator) holdDisks(ctx context.Context, r *record.Container, own imageunpack.Disk) (err error) {
	r.Disks, err = c.disks.Hold(ctx, r.ID, r.Sandbox.Value.GetMetadata().GetNamespace(), r.Spec, own)
	if errors.Is(err, imageunpack.ErrUnusable) || errors.Is(err, imageunpack.ErrNoDisk) || errors.Is(err, disk.ErrUnknown) {
		return fmt.Errorf("%w: %w", vmerrors.ErrInvalid, err)
	}
	if err != nil || vmspec.HasVMI(r.Sandbox.Value.GetAnnotations()) {
		return err
	}
	r.Spec = r.Spec.WithCDROMs(func(d vmspec.Disk) bool {
		image := r.Disks[d.Name].Image
		return image != nil && image.CD && d.Registry()
	})
	return nil
}

// copyKernel copies the kernel that the guest boots directly from the image into
// the container's folder.
func (c *creator) copyKernel(ctx context.Context, r record.Container, own imageunpack.Disk) error {
	k := r.Spec.Firmware.Kernel
	if k == nil {
		return nil
	}
	for _, f := range []struct{ field, from, to string }{
		{"kernelPath", k.Path, c.layout.Kernel(r.ID)}, {"initrdPath", k.Initrd, c.layout.Initrd(r.ID)},
	} {
		if f.from == "" {
			continue
		}
		err := c.copyOut(ctx, r, own, f.from, f.to)
		if errors.Is(err, imageunpack.ErrUnusable) {
			return fmt.Errorf("%w: %s: spec.domain.firmware.kernelBoot.container.%s: %w",
				vmerrors.ErrInvalid, vmspec.AnnotationVMI, f.field, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// maxKernel bounds, in bytes, what an image can make the shim copy.
const maxKernel = 1 << 30

// copyOut copies a file of the image for QEMU, which opens kernels by path.
func (c *creator) copyOut(ctx context.Context, r record.Container, own imageunpack.Disk, from, to string) error {
	src, err := c.images.Open(ctx, own, from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return err
	}
	defer dst.Close()
	if n, err := io.Copy(dst, io.LimitReader(src, maxKernel+1)); err != nil {
		return fmt.Errorf("copy %s of image %s: %w", from, own.Image, err)
	} else if n > maxKernel {
		return fmt.Errorf("%w: %s of image %s is larger than 1 GiB: not a kernel or an initrd", vmerrors.ErrInvalid, from, own.Image)
	}
	if err := dst.Chown(int(r.Domain.UID), int(r.Domain.GID)); err != nil {
		return fmt.Errorf("give %s to the VM's user: %w", to, err)
	}
	return dst.Close()
}
