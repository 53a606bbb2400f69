package metrics

import (
	"context"
	"sync"
	"time"

	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/cgroup"
	"github.com/nodevirt/nodevirt/shim/domain"
)

// Snapshot is the state of the node at one moment.
type Snapshot struct {
	// States counts the VM containers by their state.
	States map[string]int
	// Libvirt and Containerd report whether they answered.
	Libvirt, Containerd bool
	// Images is how many images have a disk that a VM container holds.
	Images int
	// ImageFS is the file system of images: bytes that images use, and its size and free space.
	ImageFSUsed, ImageFSSize, ImageFSFree uint64
	// Expanded is the number of disks that are kept for clones, and their size in bytes.
	Expanded      int
	ExpandedBytes int64
	// Expanding are the disks that are being expanded.
	Expanding []Expansion
	// VMs are those that run.
	VMs []VM
}

// Expansion is a disk that is being expanded. Done is the completed fraction, 0 to 1.
type Expansion struct {
	Namespace, Name, Disk string // the pod's, and the disk's in it
	Done                  float64
}

// VM is a VM that runs. Parts that could not be read are nil.
type VM struct {
	// Name is that of the VirtualMachineInstance, or of a pod that is of none. Namespace is the pod's.
	Namespace, Name string
	Started         time.Time
	RAM             int64  // bytes
	Overlay         uint64 // bytes on disk
	// Agent says whether a guest agent is connected; nil if that is not known.
	Agent *bool
	Group *cgroup.Stats
	// Domain is libvirt's part, DiskNames are names of disks by those in it.
	Domain    *domain.Stats
	DiskNames map[string]string
	Cards     []Card
	// Migration is the progress of a copy to another node; nil if there is none.
	Migration *domain.Job
	// Filesystems are the guest's, as its agent reported them last.
	Filesystems []Filesystem
}

// Filesystem is a file system of a guest, by the guest's words. Sizes are in bytes.
type Filesystem struct {
	Disk, MountPoint, Type string
	Used, Total            int64
}

// Card is a network card of a guest, and its counters as the guest sees them.
type Card struct {
	Name string
	netsetup.Counters
}

// Source reports the state of the node; package vm implements it.
type Source interface {
	// Snapshot returns the current state. ctx bounds its calls to libvirtd and containerd.
	Snapshot(ctx context.Context) Snapshot
}

const (
	// snapshotTime bounds how long a scrape waits for a snapshot.
	snapshotTime = 5 * time.Second
	// snapshotAge bounds the age of a snapshot that several scrapes share.
	snapshotAge = 3 * time.Second
)

// recent takes snapshots, one at a time.
type recent struct {
	source Source

	mu    sync.Mutex
	last  Snapshot
	taken time.Time
	next  chan struct{} // closed when the snapshot in progress is taken; nil if there is none
}

// get returns a recent snapshot, or waits for one. It returns false if that takes
// too long; the scrape then has only the shim's own counters.
func (r *recent) get() (Snapshot, bool) {
	r.mu.Lock()
	if time.Since(r.taken) < snapshotAge {
		defer r.mu.Unlock()
		return r.last, true
	}
	if r.next == nil {
		r.next = make(chan struct{})
		go r.take(r.next)
	}
	next := r.next
	r.mu.Unlock()
	select {
	case <-next:
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.last, true
	case <-time.After(snapshotTime):
		return Snapshot{}, false
	}
}

func (r *recent) take(done chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), snapshotTime)
	defer cancel()
	s := r.source.Snapshot(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.taken, r.next = s, time.Now(), nil
	close(done)
}
