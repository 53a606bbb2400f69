package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/google/uuid"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
	"github.com/nodevirt/nodevirt/imageunpack"
)

// errNotHere is the error if the node does not have the image.
var errNotHere = errors.New("not on this node")

// isElsewhere reports whether an image should be looked for in its registry.
func isElsewhere(err error) bool {
	return errors.Is(err, errNotHere) || errdefs.IsNotFound(err)
}

// isProblem reports whether the image is at fault.
func isProblem(err error) bool {
	return errors.Is(err, imageunpack.ErrUnusable) || errors.Is(err, imageunpack.ErrNoDisk)
}

// local inspects an image where containerd has unpacked it, without a copy.
func (i inspect) local(ctx context.Context, ref string) (report, error) {
	if os.Geteuid() != 0 { // only root can mount a snapshot
		return report{}, errNotHere
	}
	client, err := cli.DialContainerd(ctx, i.containerd)
	if err != nil {
		return report{}, fmt.Errorf("%w: %w", errNotHere, err)
	}
	defer func() { _ = client.Close() }()
	ctx = namespaces.WithNamespace(ctx, cli.Namespace)
	dir, err := os.MkdirTemp("", "nodevirt-inspect-")
	if err != nil {
		return report{}, fmt.Errorf("make a mount point: %w", err)
	}
	unpacker := imageunpack.New(client, imageunpack.Options{
		Namespace: cli.Namespace, Snapshotter: i.snapshotter, MountDir: dir, MaxDiskSize: i.maxSize,
	})
	owner := "inspect-" + uuid.NewString()
	disk, diskErr := unpacker.Acquire(ctx, owner, ref, i.path)
	// The folder goes only if it is empty: a mount that could not be undone must stay.
	cleanup := errors.Join(release(ctx, unpacker, owner), os.Remove(dir))
	if diskErr != nil && !isProblem(diskErr) {
		return report{}, errors.Join(diskErr, cleanup)
	}
	r, err := describe(ctx, client, ref, disk)
	if err != nil {
		return r, errors.Join(err, cleanup)
	}
	return r, errors.Join(r.findings(disk, diskErr), cleanup)
}

const undoTime = 10 * time.Second

// release releases the disk, even if ctx has ended.
func release(ctx context.Context, u *imageunpack.Unpacker, owner string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	return u.Release(ctx, owner)
}

// describe adds what containerd knows of the image.
func describe(ctx context.Context, client *containerd.Client, ref string, disk imageunpack.Disk) (report, error) {
	name := disk.Image
	if name == "" { // the image was refused before it had a name
		var err error
		if _, name, err = parse(ref, false); err != nil {
			return report{}, err
		}
	}
	img, err := client.GetImage(ctx, name)
	if errdefs.IsNotFound(err) {
		img, err = client.GetImage(ctx, ref)
	}
	if err != nil {
		return report{}, fmt.Errorf("image %s: %w", ref, cli.Plain(err))
	}
	r := report{Image: img.Name(), Source: "this node's containerd", Digest: img.Target().Digest.String(), Problems: []string{}}
	spec, err := img.Spec(ctx)
	if err != nil {
		return r, fmt.Errorf("image %s: read its config: %w", ref, cli.Plain(err))
	}
	config, err := img.Config(ctx)
	if err != nil {
		return r, fmt.Errorf("image %s: read its config: %w", ref, cli.Plain(err))
	}
	r.ImageID = config.Digest.String()
	r.checkPlatform(spec.OS, spec.Architecture)
	manifest, err := images.Manifest(ctx, img.ContentStore(), img.Target(), img.Platform())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("image %s: read its manifest: %w", ref, cli.Plain(err))
	}
	for _, l := range manifest.Layers {
		r.Layers = append(r.Layers, layer{l.Digest.String(), l.Size, isCompressed(l.MediaType)})
	}
	return r, nil
}

// isCompressed reports whether a layer is compressed, by its OCI or Docker
// media type.
func isCompressed(mediaType string) bool {
	return strings.HasSuffix(mediaType, "gzip") || strings.HasSuffix(mediaType, "zstd")
}
