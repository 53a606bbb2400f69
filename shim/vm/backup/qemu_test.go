package backup_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/nodevirt/nodevirt/shim/domain"
)

// qemu is a fake QEMU. Its jobs end when the test says so.
type qemu struct {
	// mu holds the fields against the goroutine that follows a backup: see locked.
	mu     sync.Mutex
	disks  map[string]*qemuDisk
	jobs   map[string]*qemuJob
	open   int // files
	begins int
	// renewed are the sets of disks that were prepared.
	renewed []int
	// served are the disks that QEMU serves, listening on a socket. deaf is why it does not.
	served []domain.ServedDisk
	deaf   error
	// stalled says that the guest is stopped.
	stalled bool
	// begun is called, with the lock held, when a backup has begun; refuse is why QEMU begins none.
	begun  func()
	refuse error
}

type qemuDisk struct{ checkpoints []string }

type qemuJob struct {
	ended  bool
	failed error
}

const diskSize = 1 << 20

func newQEMU(targets ...string) *qemu {
	q := &qemu{disks: map[string]*qemuDisk{}, jobs: map[string]*qemuJob{}, begun: func() {}}
	for _, target := range targets {
		q.disks[target] = &qemuDisk{}
	}
	return q
}

// locked changes QEMU, or its rig, while a backup may be followed.
func (q *qemu) locked(change func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	change()
}

// finish ends the jobs.
func (q *qemu) finish(failed error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, j := range q.jobs {
		j.ended, j.failed = true, failed
	}
}

func (q *qemu) Sources(context.Context, string) (map[string]domain.BackupSource, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := map[string]domain.BackupSource{}
	for target, d := range q.disks {
		all[target] = domain.BackupSource{Size: diskSize, Checkpoints: slices.Clone(d.checkpoints)}
	}
	return all, nil
}

func (q *qemu) Keep(_ context.Context, _ string, checkpoints []string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, d := range q.disks {
		d.checkpoints = slices.DeleteFunc(d.checkpoints, func(name string) bool { return !slices.Contains(checkpoints, name) })
	}
	return nil
}

func (q *qemu) Begin(_ context.Context, _ string, b domain.Backup, files []*os.File) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.begins++
	q.open = len(files)
	if q.refuse != nil {
		return q.refuse
	}
	for _, d := range b.Disks {
		if d.Size != diskSize || b.Since != "" && !slices.Contains(q.disks[d.Target].checkpoints, b.Since) {
			return fmt.Errorf("disk %s: %w", d.Target, domain.ErrChanged)
		}
		if q.jobs[d.Target] != nil {
			return errors.New("the disk has a job")
		}
	}
	for _, d := range b.Disks {
		q.jobs[d.Target] = &qemuJob{}
		q.disks[d.Target].checkpoints = append(q.disks[d.Target].checkpoints, b.Checkpoint)
	}
	q.begun()
	return nil
}

func (q *qemu) Renew(_ context.Context, _ string, set int, _ *os.File) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.renewed = append(q.renewed, set)
	return nil
}

func (q *qemu) Serve(_ context.Context, _ string, disks []domain.ServedDisk, _ *os.File) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, d := range disks {
		if j := q.jobs[d.Target]; j == nil || j.ended {
			return fmt.Errorf("disk %s: %w", d.Target, domain.ErrChanged)
		}
	}
	if q.deaf == nil {
		q.served = disks
	}
	return q.deaf
}

func (q *qemu) Jobs(_ context.Context, _ string, disks []domain.BackupDisk) (domain.BackupJobs, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	jobs := domain.BackupJobs{Stalled: q.stalled}
	for _, d := range disks {
		j := q.jobs[d.Target]
		if j == nil {
			continue
		}
		jobs.Found++
		if j.ended {
			jobs.Ended++
			jobs.Failed = errors.Join(jobs.Failed, j.failed)
		}
	}
	return jobs, nil
}

func (q *qemu) End(_ context.Context, _ string, disks []domain.BackupDisk) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ended := true
	q.served = nil
	for _, d := range disks {
		j := q.jobs[d.Target]
		switch {
		case j == nil:
		case j.ended:
			delete(q.jobs, d.Target)
		default:
			j.ended, j.failed, ended = true, errors.New("cancelled"), false
		}
	}
	return ended, nil
}

func (q *qemu) Close(_ context.Context, _ string, disks []domain.BackupDisk) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, d := range disks {
		if j := q.jobs[d.Target]; j != nil && !j.ended {
			return errors.New("the file is in use")
		}
	}
	q.open = 0
	return nil
}
