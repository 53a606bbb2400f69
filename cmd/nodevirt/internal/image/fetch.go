package image

import (
	"context"
	"errors"
	"fmt"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
	"github.com/nodevirt/nodevirt/imageunpack"
)

// fetch inspects an image in its registry. It extracts the files in /disk to a temporary
// folder.
func (i inspect) fetch(ctx context.Context, ref string) (_ report, err error) {
	_, full, err := parse(ref, i.insecure)
	if err != nil {
		return report{}, err
	}
	from, err := newRegistry(full, i.insecure)
	if err != nil {
		return report{}, err
	}
	img, err := from.image(ctx)
	if err != nil {
		return report{}, err
	}
	r := report{Image: full, Source: "registry " + from.ref.Context().RegistryStr(), Problems: []string{}}
	total, err := r.describe(img)
	if err != nil {
		return r, fmt.Errorf("image %s: %w", full, err)
	}
	if err := artifact(img); err != nil {
		return r, r.findings(imageunpack.Disk{}, err)
	}
	dir, err := os.MkdirTemp("", "nodevirt-inspect-")
	if err != nil {
		return r, fmt.Errorf("make a temporary folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return r, fmt.Errorf("make a temporary folder: %w", err)
	}
	defer root.Close()
	bar := cli.NewBar(i.errOut, total, "fetch")
	err = extract(ctx, img, root, i.maxSize, bar)
	bar.Done()
	if err != nil && !isProblem(err) {
		return r, fmt.Errorf("fetch image %s: %w", full, err)
	}
	disk := imageunpack.Disk{}
	if err == nil {
		disk, err = imageunpack.Examine(ctx, root, i.path, i.maxSize)
	}
	return r, r.findings(disk, err)
}

// artifact returns an error for an OCI artifact.
func artifact(img v1.Image) error {
	manifest, err := img.Manifest()
	if err != nil {
		return fmt.Errorf("read the manifest: %w", err)
	}
	config, err := img.ConfigFile()
	if err != nil || len(config.RootFS.DiffIDs) > 0 {
		return err
	}
	return imageunpack.CheckArtifact(string(manifest.Config.MediaType))
}

// describe adds what the image's manifest and config say; total is the size of
// its layers in bytes, -1 if unknown.
func (r *report) describe(img v1.Image) (total int64, err error) {
	digest, err := img.Digest()
	if err != nil {
		return 0, err
	}
	manifest, err := img.Manifest()
	if err != nil {
		return 0, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return 0, err
	}
	r.Digest, r.ImageID = digest.String(), manifest.Config.Digest.String()
	r.checkPlatform(config.OS, config.Architecture)
	for _, l := range manifest.Layers {
		if total += l.Size; isCompressed(string(l.MediaType)) {
			total = -1 << 62 // its uncompressed size is unknown
		}
		r.Layers = append(r.Layers, layer{l.Digest.String(), l.Size, isCompressed(string(l.MediaType))})
	}
	return max(total, -1), nil
}
