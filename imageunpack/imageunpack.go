// Package imageunpack finds, checks and holds the disk in an image that containerd has pulled, for a
// VM to use.
//
// It owns the lease and the read-only snapshot view that keep an image's files in place while a VM
// uses them, the search for the disk below /disk, the checks of the untrusted file before QEMU reads
// it, and the qcow2 overlay that takes the VM's writes. Nothing is copied: QEMU reads the disk where
// the snapshotter unpacked it.
//
// It leaves to others pulling, storing and deleting images (containerd), the record that a disk is
// in use (the caller stores a [Disk] and passes it back), and attaching the disk (libvirt).
package imageunpack

import (
	"context"
	"runtime"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"golang.org/x/sync/semaphore"
)

// Options are the settings of an Unpacker.
type Options struct {
	// Namespace is containerd's namespace of the images; the kubelet's is "k8s.io".
	Namespace string
	// Snapshotter holds the unpacked images, such as "overlayfs". Its mounts must be ones that
	// the kernel supports as they are (overlayfs, native, btrfs, stargz; not erofs). If it fetches
	// files while they are read, it must verify what it fetches: their content never changes.
	Snapshotter string
	// MountDir is an existing folder, 0700 and the caller's own, in which a snapshot is mounted
	// for less than a millisecond at a time. See [Unpacker.Sweep].
	MountDir string
	// MaxDiskSize is the maximum of a disk's virtual size and of its file's size, in bytes.
	MaxDiskSize int64
	// Architectures are those, beside the node's, whose images are also taken.
	Architectures []string
}

// Unpacker finds and holds the disks of images. Its methods may be called at the same time for
// different owners; the calls for one owner must not overlap.
type Unpacker struct {
	client *containerd.Client
	opts   Options
	checks *semaphore.Weighted // bounds how many checks run at the same time
}

// New returns an Unpacker. The client stays the caller's.
func New(client *containerd.Client, o Options) *Unpacker {
	return &Unpacker{client: client, opts: o, checks: semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0)))}
}

// Format is the format of a disk's file, by QEMU's name.
type Format string

// The formats of disks that can be attached.
const (
	QCOW2 Format = "qcow2"
	Raw   Format = "raw"
)

// Disk is a disk in an image that is held for its owner. It is a plain value: stored, it stays
// valid after a restart of this process or of containerd.
type Disk struct {
	Owner       string `json:"owner"`        // the name that the caller gave Acquire
	Image       string `json:"image"`        // containerd's name of the image it came from
	ImageID     string `json:"imageID"`      // digest of the image's config: CRI's image id
	Path        string `json:"path"`         // absolute, in the image
	Format      Format `json:"format"`       //
	VirtualSize int64  `json:"virtualSize"`  // bytes, as the guest sees it; a multiple of 512
	Size        int64  `json:"size"`         // bytes of the file in the image
	Content     int64  `json:"content"`      // the most bytes that it takes as a raw file, without holes
	CD          bool   `json:"cd,omitempty"` // it is a raw ISO 9660 image, the format of CDs
	// Architecture is that which the image is labelled for, by Go's name; empty if it has no such label.
	Architecture string `json:"architecture,omitempty"`
	Snapshotter  string `json:"snapshotter"` // the snapshotter of the view
	Snapshot     string `json:"snapshot"`    // key of the read-only view
	Lease        string `json:"lease"`       // id of the lease that keeps the view
}

// inNamespace returns a context for calls to containerd.
func (u *Unpacker) inNamespace(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, u.opts.Namespace)
}

func (u *Unpacker) snapshots() snapshots.Snapshotter {
	return u.client.SnapshotService(u.opts.Snapshotter)
}
