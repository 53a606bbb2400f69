package imageunpack

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// maxMetadata is the maximum size, in bytes, of an image's index, manifest and config, each of which
// is read into memory. Registries accept manifests of up to 4 MiB.
const maxMetadata = 8 << 20

// config has the fields of an image's config that matter here.
type config struct {
	id     digest.Digest // CRI's image id
	os     string
	arch   string
	layers []digest.Digest // of the layers' archives, from the lowest up
}

// readConfig reads the config of img. Its errors name the image.
func readConfig(ctx context.Context, img containerd.Image) (config, error) {
	provider := bounded{img.ContentStore()}
	desc, err := images.Config(ctx, provider, img.Target(), img.Platform())
	var blob []byte
	if err == nil {
		blob, err = content.ReadBlob(ctx, provider, desc)
	}
	if errdefs.IsNotFound(err) {
		return config{}, fmt.Errorf("image %q has nothing for %s on this node: it was built for another "+
			"platform, or was removed meanwhile: pull an image for this platform: %w",
			img.Name(), platforms.Format(platforms.DefaultSpec()), err)
	}
	var c config
	if err == nil {
		c, err = decodeConfig(blob)
	}
	if err == nil && len(c.layers) == 0 {
		err = CheckArtifact(desc.MediaType)
	}
	if err != nil {
		return config{}, fmt.Errorf("read the config of image %q: %w", img.Name(), err)
	}
	c.id = desc.Digest
	return c, nil
}

// decodeConfig decodes an image's config. Errors match ErrUnusable.
func decodeConfig(blob []byte) (config, error) {
	var decoded ocispec.Image
	if err := json.Unmarshal(blob, &decoded); err != nil {
		return config{}, unreadable("", err)
	}
	for i, d := range decoded.RootFS.DiffIDs {
		if err := d.Validate(); err != nil {
			return config{}, unreadable(fmt.Sprintf("rootfs.diff_ids[%d]: ", i), err)
		}
	}
	return config{os: decoded.OS, arch: decoded.Architecture, layers: decoded.RootFS.DiffIDs}, nil
}

// CheckArtifact returns an error for the media type of the config of an OCI artifact, such as ORAS makes: its layers are files
// and not archives. It is for manifests whose config lists no layers.
func CheckArtifact(configType string) error {
	if images.IsConfigType(configType) || configType == "" {
		return nil
	}
	return fmt.Errorf("%w but an artifact, whose config is of type %.100q: build an image from the disk (nodevirt image build DISK)",
		ErrArtifact, configType)
}

// unreadable returns an ErrConfig. It shortens err, in which a decoder quotes the config.
func unreadable(where string, err error) error {
	return fmt.Errorf("%w: build the image again: %s%.200s", ErrConfig, where, err.Error())
}

// CheckPlatform returns an error for an image of another platform than this node's. System and
// architecture are those of its config; an empty one matches every node. Others are architectures whose
// guests the node runs, too.
func CheckPlatform(system, architecture string, others ...string) error {
	got := platforms.Normalize(ocispec.Platform{OS: system, Architecture: architecture})
	if (system == "" || got.OS == "linux") && (architecture == "" || got.Architecture == runtime.GOARCH || slices.Contains(others, got.Architecture)) {
		return nil
	}
	return fmt.Errorf("%w: it is for %.40q, but this node is linux/%s: pull an image for this platform; "+
		"if only its label is wrong, build it again (nodevirt image build --arch %[3]s, "+
		"docker build --platform linux/%[3]s)", ErrPlatform, system+"/"+architecture, runtime.GOARCH)
}

// CheckGuest returns an error for a disk that was made for another architecture than a guest's.
func (d Disk) CheckGuest(architecture string) error {
	if d.Architecture == "" || d.Architecture == architecture {
		return nil
	}
	return fmt.Errorf("image %q: %w: it is for %.40q, and the VM is of architecture %s: name the image for %[4]s by its digest; "+
		"if only its label is wrong, build it again (nodevirt image build --arch %[4]s)", d.Image, ErrPlatform, d.Architecture, architecture)
}

// bounded provides an image's metadata and refuses blobs that are too large.
type bounded struct{ content.Provider }

func (b bounded) ReaderAt(ctx context.Context, desc ocispec.Descriptor) (content.ReaderAt, error) {
	r, err := b.Provider.ReaderAt(ctx, desc)
	if err != nil {
		return nil, err
	}
	if r.Size() > maxMetadata {
		_ = r.Close() // only read
		return nil, fmt.Errorf("%w: %.100q of %d bytes, but at most %d are read: build the image again",
			ErrConfig, desc.MediaType, r.Size(), maxMetadata)
	}
	return r, nil
}
