package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
)

// store is the image store of the node's containerd.
type store struct {
	client  *containerd.Client
	address string
}

func (*store) doing() string  { return "store" }
func (s *store) done() string { return "stored in this node's containerd" }
func (s *store) close()       { _ = s.client.Close() }

// write stores the blobs under a lease, then names the image. After a failure, containerd
// removes the blobs with the lease.
func (s *store) write(ctx context.Context, t target, bar *cli.Bar) (err error) {
	ctx, release, err := s.client.WithLease(ctx)
	if err != nil {
		return fmt.Errorf("store %s in containerd: %w", t.name, cli.Plain(err))
	}
	defer func() { err = errors.Join(err, release(context.WithoutCancel(ctx))) }()
	desc, err := s.writeBlobs(ctx, t, bar)
	if err == nil {
		err = s.name(ctx, images.Image{Name: t.name, Target: desc})
	}
	if err != nil {
		return fmt.Errorf("store %s in containerd: %w", t.name, cli.Plain(err))
	}
	img := containerd.NewImageWithPlatform(s.client, images.Image{Name: t.name, Target: desc}, platforms.All)
	done := cli.Spin(os.Stderr, "unpack")
	defer done()
	if err := img.Unpack(ctx, ""); err != nil {
		return fmt.Errorf("unpack %s: %w", t.name, cli.Plain(err))
	}
	return s.settled(ctx, t.name)
}

// settled waits until containerd's CRI knows the image, which it learns from an event. It
// returns at once for a containerd without CRI.
func (s *store) settled(ctx context.Context, name string) error {
	n, err := cli.Connect(s.address)
	if err != nil {
		return err
	}
	defer n.Close()
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for {
		reply, err := n.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
		if err != nil || reply.GetImage() != nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(settlePoll):
		}
	}
}

const (
	settleTime = 5 * time.Second
	settlePoll = 20 * time.Millisecond
)

// writeBlobs stores the layers, the config, and last the manifest that holds them.
func (s *store) writeBlobs(ctx context.Context, t target, bar *cli.Bar) (desc ocispec.Descriptor, err error) {
	config, err := partial.ConfigLayer(t.img)
	if err != nil {
		return desc, err
	}
	layers, err := t.img.Layers()
	if err != nil {
		return desc, err
	}
	labels := map[string]string{} // which link the blobs for containerd's garbage collection
	for i, l := range layers {
		if labels[fmt.Sprintf("containerd.io/gc.ref.content.l.%d", i)], err = s.writeLayer(ctx, l, bar); err != nil {
			return desc, err
		}
	}
	if labels["containerd.io/gc.ref.content.config"], err = s.writeLayer(ctx, config, io.Discard); err != nil {
		return desc, err
	}
	d, err := partial.Descriptor(t.img)
	if err != nil {
		return desc, err
	}
	manifest, err := t.img.RawManifest()
	if err != nil {
		return desc, err
	}
	desc = ocispec.Descriptor{
		MediaType: string(d.MediaType), Digest: digest.Digest(d.Digest.String()), Size: d.Size,
	}
	return desc, content.WriteBlob(ctx, s.client.ContentStore(), "nodevirt-"+desc.Digest.String(),
		bytes.NewReader(manifest), desc, content.WithLabels(labels))
}

func (s *store) writeLayer(ctx context.Context, l v1.Layer, bar io.Writer) (name string, err error) {
	d, err := partial.Descriptor(l)
	if err != nil {
		return "", err
	}
	r, err := l.Compressed()
	if err != nil {
		return "", err
	}
	name = d.Digest.String()
	err = content.WriteBlob(ctx, s.client.ContentStore(), "nodevirt-"+name, io.TeeReader(r, bar),
		ocispec.Descriptor{MediaType: string(d.MediaType), Digest: digest.Digest(name), Size: d.Size})
	return name, errors.Join(err, r.Close())
}

// name creates the image, or moves its name to the new manifest.
func (s *store) name(ctx context.Context, img images.Image) error {
	_, err := s.client.ImageService().Create(ctx, img)
	if errdefs.IsAlreadyExists(err) {
		_, err = s.client.ImageService().Update(ctx, img)
	}
	return err
}
