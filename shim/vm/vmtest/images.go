package vmtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/shim/checkpoint"
)

// Images is a fake of [imageunpack.Unpacker], and of containerd's CRI for images.
// Each image has one disk.
type Images struct {
	script *Script
	// Folder has the files that Open opens.
	Folder string
	// Free is how many bytes can be reserved at a time; 0 for no limit.
	Free int64

	turns   *expand.Turns
	mu      sync.Mutex
	holders map[string]bool
	removed chan struct{}
	gone    map[string]bool
}

// NewImages returns images that are not held.
func NewImages(s *Script, folder string) *Images {
	return &Images{script: s, Folder: folder, holders: map[string]bool{}, removed: make(chan struct{}, 1), gone: map[string]bool{}, turns: expand.NewTurns(2)}
}

func (i *Images) hold(owner string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.holders[owner] = true
}

func (i *Images) drop(owner string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.holders, owner)
}

// Acquire implements imageunpack's. A call that fails leaves the disk held, as when
// containerd goes away meanwhile, unless it refuses the image.
func (i *Images) Acquire(ctx context.Context, owner, image, path string) (imageunpack.Disk, error) {
	i.hold(owner)
	if err := i.script.enter(ctx, "Images.Acquire"); err != nil {
		if errors.Is(err, imageunpack.ErrNoDisk) || errors.Is(err, imageunpack.ErrUnusable) {
			i.drop(owner)
		}
		return imageunpack.Disk{}, err
	}
	if path == "" {
		path = "/disk/disk.qcow2"
	}
	return imageunpack.Disk{
		Owner: owner, Image: image, ImageID: "sha256:" + image, Path: path, Format: imageunpack.QCOW2, VirtualSize: 1 << 30,
	}, nil
}

// AcquireImage implements imageunpack's.
func (i *Images) AcquireImage(ctx context.Context, owner, image string) (imageunpack.Disk, error) {
	found, err := i.Acquire(ctx, owner, image, "none")
	found.Path = ""
	return found, err
}

// Open implements imageunpack's. Opening the manifest of a checkpoint is the call Images.OpenManifest.
func (i *Images) Open(ctx context.Context, _ imageunpack.Disk, name string) (*os.File, error) {
	call := "Images.Open"
	if filepath.Base(name) == checkpoint.ManifestName {
		call += "Manifest"
	}
	if err := i.script.enter(ctx, call); err != nil {
		return nil, err
	}
	return os.Open(filepath.Join(i.Folder, filepath.Base(name)))
}

// Owners implements imageunpack's.
func (i *Images) Owners(ctx context.Context) ([]string, error) {
	if err := i.script.enter(ctx, "Images.Owners"); err != nil {
		return nil, err
	}
	return i.Left(), nil
}

// Release implements imageunpack's.
func (i *Images) Release(ctx context.Context, owner string) error {
	if err := i.script.enter(ctx, "Images.Release"); err != nil {
		return err
	}
	i.drop(owner)
	return nil
}

// Sweep implements imageunpack's.
func (i *Images) Sweep() error { return i.script.note("Images.Sweep") }

// Removals implements imageunpack's.
func (i *Images) Removals(context.Context) <-chan struct{} { return i.removed }

// RemoveImage removes an image from containerd's store.
func (i *Images) RemoveImage(id string) {
	i.mu.Lock()
	i.gone[id] = true
	i.mu.Unlock()
	i.removed <- struct{}{}
}

// Collect implements expand's: it asks for the image "sha256:expanded".
func (i *Images) Collect(present func(image string) (bool, error)) error {
	there, err := present("sha256:expanded")
	if err != nil {
		return err
	}
	return i.script.note(fmt.Sprintf("Images.Collect, there: %t", there))
}

// Turns implements expand's. Two run at a time.
func (i *Images) Turns() *expand.Turns { return i.turns }

// Reserve implements expand's. What is not released is left.
func (i *Images) Reserve(ctx context.Context, f *os.File, needs int64) (_ context.Context, release func(), err error) {
	if i.Free > 0 && needs > i.Free {
		return nil, nil, fmt.Errorf("%w: it may take %d bytes of %d", syscall.ENOSPC, needs, i.Free)
	}
	owner := "space for " + f.Name()
	i.hold(owner)
	return ctx, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.holders, owner)
	}, nil
}

// ImageStatus implements containerd's.
func (i *Images) ImageStatus(ctx context.Context, in *runtimeapi.ImageStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ImageStatusResponse, error) {
	if err := i.script.enter(ctx, "Images.ImageStatus"); err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	id := in.GetImage().GetImage()
	if i.gone[id] {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{
		Id: id, RepoTags: []string{"example.com/disk:1"}, RepoDigests: []string{"example.com/disk@sha256:1"},
	}}, nil
}

// ImageFsInfo implements containerd's.
func (i *Images) ImageFsInfo(ctx context.Context, _ *runtimeapi.ImageFsInfoRequest, _ ...grpc.CallOption) (*runtimeapi.ImageFsInfoResponse, error) {
	if err := i.script.enter(ctx, "Images.ImageFsInfo"); err != nil {
		return nil, err
	}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{
		{UsedBytes: &runtimeapi.UInt64Value{Value: 4096}},
	}}, nil
}

// Left returns the owners of the disks that are held.
func (i *Images) Left() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Sorted(maps.Keys(i.holders))
}
