package node

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"syscall"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/pkg/archive/compression"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// Pristine compares what the node's images were unpacked to with the layers that they were unpacked
// from, byte by byte, with owners and modes; and the disks that were expanded for all VMs of an image
// with the image's. No test may have written to them. Each layer is looked at once.
//
// Images that can't be read, as a test took away their content or their snapshots, and files that are
// elsewhere than their layer says, by a link, are left out. It returns how many files it compared.
func (n *Node) Pristine(ctx context.Context) (files int, err error) {
	p := pristine{snapshotter: n.snapshotter(), disks: map[string]string{}}
	err = n.withContainerd(ctx, func(ctx context.Context, c *containerd.Client) error {
		p.client = c
		all, err := c.ListImages(ctx)
		if err != nil {
			return err
		}
		ctx, done, err := c.WithLease(ctx) // for the views
		if err != nil {
			return err
		}
		seen := map[digest.Digest]bool{}
		for _, image := range all {
			_ = p.image(ctx, image, seen) // one that can't be read has nothing to compare
		}
		return done(ctx)
	})
	if err == nil {
		err = n.pristineBases(ctx, p.disks)
	}
	return p.files, errors.Join(append(p.changed, err)...)
}

// pristine is a comparison under way.
type pristine struct {
	client      *containerd.Client
	snapshotter string
	files       int
	changed     []error
	disks       map[string]string // the files below /disk, by the names of bases
}

func (p *pristine) image(ctx context.Context, image containerd.Image, seen map[digest.Digest]bool) error {
	manifest, err := images.Manifest(ctx, p.client.ContentStore(), image.Target(), platforms.Default())
	if err != nil {
		return err
	}
	diffs, err := image.RootFS(ctx)
	if err != nil || len(diffs) != len(manifest.Layers) {
		return err
	}
	for i, layer := range manifest.Layers {
		chain := identity.ChainID(diffs[:i+1])
		dir, err := p.snapshot(ctx, chain)
		if err != nil {
			return err
		}
		if !seen[chain] {
			seen[chain] = true
			if err := p.layer(ctx, layer, dir); err != nil {
				return fmt.Errorf("layer %s, unpacked to %s: %w", layer.Digest, dir, err)
			}
		}
		if err := p.noteDisks(manifest.Config.Digest, dir); err != nil {
			return err
		}
	}
	return nil
}

// snapshot is the folder of a layer's own files. They are below the paths of a view of it.
func (p *pristine) snapshot(ctx context.Context, chain digest.Digest) (string, error) {
	s := p.client.SnapshotService(p.snapshotter)
	key := "pristine-" + chain.Encoded()
	mounts, err := s.View(ctx, key, chain.String())
	if err != nil {
		return "", err
	}
	dir, err := topOf(mounts)
	return dir, errors.Join(err, s.Remove(ctx, key))
}

func topOf(mounts []mount.Mount) (string, error) {
	if len(mounts) != 1 {
		return "", fmt.Errorf("a view of %d mounts", len(mounts))
	}
	if mounts[0].Type == "bind" {
		return mounts[0].Source, nil
	}
	for _, o := range mounts[0].Options {
		if lower, ok := strings.CutPrefix(o, "lowerdir="); ok {
			top, _, _ := strings.Cut(lower, ":")
			return top, nil
		}
	}
	return "", fmt.Errorf("a view of type %s without lower folders", mounts[0].Type)
}

// layer compares the regular files of a layer with a snapshot's. A path that comes again in a layer
// is what it is last.
func (p *pristine) layer(ctx context.Context, layer v1.Descriptor, dir string) error {
	blob, err := p.client.ContentStore().ReaderAt(ctx, layer)
	if err != nil {
		return err
	}
	defer blob.Close()
	packed, err := compression.DecompressStream(content.NewReader(blob))
	if err != nil {
		return err
	}
	defer packed.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	last := map[string]error{}
	for archive := tar.NewReader(packed); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		delete(last, name)
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if f, err := root.Open(name); err == nil {
			last[name] = errors.Join(same(f, h, archive), f.Close())
		}
	}
	p.files += len(last)
	for name, err := range last {
		if err != nil {
			p.changed = append(p.changed, fmt.Errorf("an image was written: %s in %s: %w", name, dir, err))
		}
	}
	return nil
}

// same compares a file with what an archive says of it.
func same(f *os.File, h *tar.Header, content io.Reader) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t)
	if int(owner.Uid) != h.Uid || int(owner.Gid) != h.Gid || info.Mode() != h.FileInfo().Mode() {
		return fmt.Errorf("it is %d:%d's with %v, and was %d:%d's with %v",
			owner.Uid, owner.Gid, info.Mode(), h.Uid, h.Gid, h.FileInfo().Mode())
	}
	if info.Size() != h.Size {
		return fmt.Errorf("it has %d bytes, and had %d", info.Size(), h.Size)
	}
	a, b := make([]byte, 1<<18), make([]byte, 1<<18)
	for at := int64(0); at < h.Size; {
		n := min(int64(len(a)), h.Size-at)
		if _, err := io.ReadFull(f, a[:n]); err != nil {
			return err
		}
		if _, err := io.ReadFull(content, b[:n]); err != nil {
			return err
		}
		if !bytes.Equal(a[:n], b[:n]) {
			return fmt.Errorf("it differs at %d or behind", at)
		}
		at += n
	}
	return nil
}
