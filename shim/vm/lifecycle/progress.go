package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/shim/vminfo"
)

// Progress is how much of a disk is expanded.
type Progress = expand.Progress

// progress is that of all disks of a creation.
type progress struct {
	mu    sync.Mutex
	disks []diskProgress // in the order in which they are made
}

type diskProgress struct {
	name string
	Progress
	logged float64 // the part that was done at the last log line
	since  time.Time
}

// step is the part of a disk after which its progress is logged again.
const step = 0.1

// set records how much of a disk is done, and reports whether to log that.
func (p *progress) set(disk string, now Progress) (log bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.disks, func(d diskProgress) bool { return d.name == disk })
	if i < 0 {
		i = len(p.disks)
		p.disks = append(p.disks, diskProgress{name: disk, logged: -step, since: time.Now()})
	}
	d := &p.disks[i]
	waited := now.Waiting && !d.Waiting
	d.Progress = now
	if !now.Waiting && now.Done >= d.logged+step {
		d.logged = now.Done
		return true
	}
	return waited
}

// list is the progress of the disks whose expansion has begun.
func (p *progress) list() []vminfo.DiskProgress {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []vminfo.DiskProgress
	for _, d := range p.disks {
		all = append(all, vminfo.DiskProgress{Disk: d.name, Waiting: d.Waiting, Done: d.Done, Since: d.since})
	}
	return all
}

// String is the progress for an error.
func (p *progress) String() string {
	var parts []string
	for _, d := range p.list() {
		parts = append(parts, fmt.Sprintf("disk %q is being expanded: %s", d.Disk, percent(Progress{Waiting: d.Waiting, Done: d.Done})))
	}
	if len(parts) == 0 {
		return "its disks are being made"
	}
	return strings.Join(parts, ", ")
}

func percent(p Progress) string {
	if p.Waiting {
		return "waiting for other disks"
	}
	return fmt.Sprintf("%.0f %%", 100*p.Done)
}
