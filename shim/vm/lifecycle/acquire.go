package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/disk"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// hold acquires what the container's disks are made of, and resolves its spec. For archive see create.
func (c *creator) hold(ctx context.Context, n *draft, config *runtimeapi.ContainerConfig, archive string) (err error) {
	ctx, ended := beginPhase(ctx, record.PhaseAcquire)
	defer func() { n.rec.Timeline = append(n.rec.Timeline, ended(unlessOrdinary(err))) }()
	image := config.GetImage().GetImage()
	if n.from, err = c.archive(n.rec, config, cmp.Or(archive, image)); err != nil {
		return err
	}
	if n.from != nil {
		n.undo = append(n.undo, n.from.release)
		if archive == "" {
			image = n.from.manifest.Image
		}
	}
	if n.asked, n.own, err = c.acquire(ctx, n.rec.ID, n.rec.Sandbox.Value, config, image); err != nil {
		return err
	}
	n.undo = append(n.undo, func(ctx context.Context) error { c.release(ctx, n.rec.ID, n.asked.Disks()); return nil })
	if err = c.inVolume(n, config); err == nil {
		err = c.inImage(ctx, n)
	}
	if err != nil {
		return fmt.Errorf("container %q: %w", config.GetMetadata().GetName(), err)
	}
	if n.rec.Image, err = c.imageOf(ctx, image, n.own); err != nil {
		return err
	}
	if archive != "" && n.rec.Image.ID != n.from.manifest.Image {
		return fmt.Errorf("container %q: %w: its checkpoint is of a VM of image %.100q, and image %q is requested: request the same one",
			config.GetMetadata().GetName(), vmerrors.ErrInvalid, n.from.manifest.Image, n.rec.Image.ID)
	}
	if err = c.acquireDisks(ctx, n); err != nil {
		return fmt.Errorf("container %q: %w", config.GetMetadata().GetName(), err)
	}
	return nil
}

// acquire translates the request, and holds what the VM uses of the container's
// image: a disk, other files, or nothing. A container that the pod's annotation
// does not name is a VM only if its image has a disk.
func (c *creator) acquire(
	ctx context.Context, id string, pod *runtimeapi.PodSandboxConfig, config *runtimeapi.ContainerConfig, image string,
) (vmspec.Unresolved, *imageunpack.Disk, error) {
	asked, specErr := vmspec.FromCRI(pod, config)
	if specErr != nil {
		specErr = fmt.Errorf("pod %s/%s: %w: %w",
			pod.GetMetadata().GetNamespace(), pod.GetMetadata().GetName(), vmerrors.ErrInvalid, specErr)
	}
	named := vmspec.VMContainer(pod.GetAnnotations()) != ""
	path, disk := asked.ImageDisk()
	if named && (specErr != nil || !disk && !asked.ImageFiles()) {
		return asked, nil, specErr
	}
	begun := time.Now()
	own, err := c.acquireImage(ctx, id, image, path, disk || !named)
	c.metrics.Acquired(time.Since(begun), err)
	what := subject(config)
	switch {
	case errors.Is(err, imageunpack.ErrNoDisk) && !named:
		return asked, nil, fmt.Errorf("%s: %w: %w", what, vmerrors.ErrNotVM, err)
	case errors.Is(err, imageunpack.ErrNoDisk):
		return asked, nil, fmt.Errorf("%s: %w: %w: annotation %s says that it is a VM's: "+
			"build the image with a disk there, or change the annotation",
			what, vmerrors.ErrInvalid, err, vmspec.AnnotationVMContainer)
	case errors.Is(err, imageunpack.ErrUnusable):
		return asked, nil, fmt.Errorf("%s: %w: %w", what, vmerrors.ErrInvalid, err)
	case err != nil:
		c.release(ctx, id, asked.Disks()) // what it could not undo when containerd went away
		return asked, nil, fmt.Errorf("%s: %w", what, err)
	case specErr != nil:
		c.release(ctx, id, asked.Disks())
	}
	return asked, &own, specErr
}

func (c *creator) acquireImage(ctx context.Context, id, image, path string, disk bool) (imageunpack.Disk, error) {
	if disk {
		return c.images.Acquire(ctx, id, image, path)
	}
	return c.images.AcquireImage(ctx, id, image)
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

// imageOf asks containerd for the names of the container's image. own has the
// image's id, if the image is held.
func (c *creator) imageOf(ctx context.Context, name string, own *imageunpack.Disk) (record.Image, error) {
	if own != nil {
		name = own.ImageID
	}
	reply, err := c.store.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
	if err != nil {
		return record.Image{}, fmt.Errorf("ask containerd for image %s: %w", name, err)
	}
	image := record.Image{ID: cmp.Or(reply.GetImage().GetId(), name)}
	if tags := reply.GetImage().GetRepoTags(); len(tags) > 0 {
		image.Tag = tags[0]
	}
	if digests := reply.GetImage().GetRepoDigests(); len(digests) > 0 {
		image.Ref = digests[0]
	}
	return image, nil
}

// acquireDisks acquires what the disks of a container are made of, and resolves
// the container's spec with that.
func (c *creator) acquireDisks(ctx context.Context, n *draft) (err error) {
	namespace := n.rec.Sandbox.Value.GetMetadata().GetNamespace()
	n.rec.Disks, err = c.disks.Acquire(ctx, n.rec.ID, namespace, n.asked.Disks(), n.own)
	if errors.Is(err, imageunpack.ErrUnusable) || errors.Is(err, imageunpack.ErrNoDisk) || errors.Is(err, disk.ErrUnknown) {
		return fmt.Errorf("%w: %w", vmerrors.ErrInvalid, err)
	}
	if err != nil {
		return err
	}
	n.rec.Spec = n.asked.Resolve(vmspec.Facts{Mode: c.mode, Disks: disk.Facts(n.rec.Disks)})
	return nil
}
