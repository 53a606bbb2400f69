package domain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"libvirt.org/go/libvirt"
)

// Backups copies disks of running domains to files, and tracks which blocks the guest writes after
// a checkpoint.
//
// libvirt 9.0 has backups, but tracks blocks of qcow2 disks only, and opens the files of backups by
// their paths. PVCs are raw disks. So the shim runs QEMU's own commands: a backup is one
// transaction, which begins a job for each disk and a dirty bitmap for the checkpoint at one moment
// of all disks. QEMU has the files as descriptors. libvirt ignores jobs that it did not begin.
//
// A bitmap is in the memory of the QEMU that has the disk open. So it can never miss a write of the
// guest: what ends QEMU, or closes the disk, ends the bitmap, and the next backup is a full one.
type Backups struct{ conn *Connection }

// BackupDisk is a disk in a backup.
type BackupDisk struct {
	// Target is libvirt's name of the disk. Size is its size in bytes when the backup was prepared.
	Target string
	Size   int64
	// Set numbers the set of descriptors with the backup's file among the domain's, from 0. Sets of
	// backups are not those of [Hotplug].
	Set int
}

// Backup is a backup of disks as they are when it begins.
type Backup struct {
	Disks []BackupDisk
	// Checkpoint names the moment, for a later Since; empty if no later backup follows from it.
	Checkpoint string
	// Since is the checkpoint whose later changes the backup has; empty for all content.
	Since string
	// Pull keeps in the files only what the guest overwrites, until [Backups.End]: a client reads the
	// disks as they were when the backup began; see [Backups.Serve].
	Pull bool
}

// ErrChanged means that a disk is not what the backup was prepared for: it has another size, is
// gone, or does not have the checkpoint.
var ErrChanged = errors.New("the disk has changed since the backup was prepared")

// firstBackupSet is the number of a domain's first set for files of backups.
const firstBackupSet = firstSet << 1

// backupGranularity is the size of the blocks that are tracked, in bytes, and that of a cluster of
// a backup's file.
const backupGranularity = 64 << 10

// backupWorkers and backupChunk bound what a job holds in QEMU's memory, in pieces and in bytes a piece. QEMU's
// defaults are up to 128 MiB for each disk, for which the VM's cgroup has no room.
const (
	backupWorkers = 8
	backupChunk   = 256 << 10
)

// backupNode is the name of QEMU's node for a backup's file, and of the backup's job.
func backupNode(target string) string { return "nodevirt-backup-" + target }

// Begin begins a backup to qcow2 files of the disks' sizes, in the order of the disks. The files
// stay the caller's. After an error, [Backups.End] undoes what has been done. The error is
// [ErrChanged] if the caller must prepare the backup again.
func (b *Backups) Begin(ctx context.Context, uuid string, backup Backup, files []*os.File) error {
	const op = "begin a backup of"
	object := "domain " + uuid
	if len(files) != len(backup.Disks) {
		return &failure{op: op, object: object, detail: fmt.Errorf("%d files for %d disks", len(files), len(backup.Disks))}
	}
	copies, err := duplicate(map[string][]*os.File{"": files})
	if err != nil {
		return &failure{op: op, object: object, detail: err}
	}
	_, err = await(ctx, op, object, func() (struct{}, error) {
		defer copies.close()
		return struct{}{}, do(context.WithoutCancel(ctx), b.conn, op, uuid, func(dom *libvirt.Domain) error {
			return backup.begin(dom, copies[""])
		})
	})
	return err
}

func (backup Backup) begin(dom *libvirt.Domain, files []*os.File) error {
	all, err := drivesOf(dom)
	if err != nil {
		return err
	}
	var actions []map[string]any
	for i, d := range backup.Disks {
		drive, has := all[d.Target]
		switch {
		case !has, drive.size != d.Size:
			return fmt.Errorf("disk %s: %w", d.Target, ErrChanged)
		case backup.Since != "" && !drive.has(backup.Since):
			return fmt.Errorf("disk %s: %w: checkpoint %s is missing", d.Target, ErrChanged, backup.Since)
		}
		below := ""
		if backup.Pull {
			below = drive.node
		}
		if err := addBackupFile(dom, d, files[i], below); err != nil {
			return err
		}
		if backup.Checkpoint != "" {
			actions = append(actions, action("block-dirty-bitmap-add", map[string]any{
				"node": drive.node, "name": bitmapName(backup.Checkpoint, d.Size), "granularity": backupGranularity, "persistent": false,
			}))
		}
		if backup.Pull && backup.Since != "" {
			actions = append(actions, frozenChanges(drive.node, bitmapName(backup.Since, d.Size))...)
		}
		actions = append(actions, action("blockdev-backup", backup.job(d, drive)))
	}
	_, err = command(dom, "transaction", map[string]any{"actions": actions})
	return err
}

// job returns the arguments of the job that copies a disk. The bitmap of Since goes on to record.
func (backup Backup) job(d BackupDisk, from drive) map[string]any {
	job := map[string]any{
		"job-id": backupNode(d.Target), "device": from.node, "target": backupNode(d.Target),
		"sync": "full", "auto-dismiss": false,
		"x-perf": map[string]any{"max-workers": backupWorkers, "max-chunk": backupChunk},
	}
	switch {
	case backup.Pull:
		job["sync"] = "none"
	case backup.Since != "":
		job["sync"], job["bitmap"], job["bitmap-mode"] = "bitmap", bitmapName(backup.Since, d.Size), "never"
	}
	return job
}

func action(kind string, data map[string]any) map[string]any {
	return map[string]any{"type": kind, "data": data}
}

// addBackupFile opens a backup's file in QEMU. What the file does not have is read from the node
// below, if there is one.
func addBackupFile(dom *libvirt.Domain, d BackupDisk, file *os.File, below string) error {
	set := firstBackupSet + d.Set
	if err := removeSet(dom, set); err != nil {
		return err
	}
	if _, err := command(dom, "add-fd", map[string]any{"fdset-id": set}, *file); err != nil {
		return err
	}
	node := map[string]any{
		"driver": "qcow2", "node-name": backupNode(d.Target), "discard": "unmap",
		"file": map[string]any{"driver": "file", "filename": filepath.Join(fdSets, strconv.Itoa(set)), "discard": "unmap"},
	}
	if below != "" {
		node["backing"] = below
	}
	_, err := command(dom, "blockdev-add", node)
	return err
}

// Renew prepares a disk that the domain has got since it runs, with its set, for a backup. QEMU opened
// the disk for reading first, and the locks of that would keep a job off. The file, opened for
// reading, stays the caller's. The error is [ErrPaused] while the guest is paused.
func (b *Backups) Renew(ctx context.Context, uuid string, set int, file *os.File) error {
	const op = "prepare a disk for a backup of"
	copies, err := duplicate(map[string][]*os.File{"": {file}})
	if err != nil {
		return &failure{op: op, object: "domain " + uuid, detail: err}
	}
	_, err = await(ctx, op, "domain "+uuid, func() (struct{}, error) {
		defer copies.close()
		return struct{}{}, do(context.WithoutCancel(ctx), b.conn, op, uuid, func(dom *libvirt.Domain) error {
			return renew(dom, firstSet+set, copies[""][0])
		})
	})
	return err
}

// BackupJobs is how far a backup is.
type BackupJobs struct {
	// Found is the number of the backup's jobs that QEMU has, Ended that of the jobs which have ended.
	Found, Ended int
	// Failed is why a job failed; nil if none has.
	Failed error
	// Stalled says that an error of a disk, or of a backup's file, has stopped the guest.
	Stalled bool
}

// Jobs returns how far a backup is.
func (b *Backups) Jobs(ctx context.Context, uuid string, disks []BackupDisk) (BackupJobs, error) {
	return onDomain(ctx, b.conn, "follow a backup of", uuid, func(dom *libvirt.Domain) (BackupJobs, error) {
		var jobs BackupJobs
		all, err := jobsOf(dom)
		if err != nil {
			return jobs, err
		}
		if jobs.Stalled, err = stalled(dom); err != nil {
			return jobs, err
		}
		for _, d := range disks {
			job, has := all[backupNode(d.Target)]
			if !has {
				continue
			}
			jobs.Found++
			if job.Status != jobConcluded {
				continue
			}
			jobs.Ended++
			if job.Error != "" && jobs.Failed == nil {
				jobs.Failed = fmt.Errorf("disk %s: %s", d.Target, job.Error)
			}
		}
		return jobs, nil
	})
}

// Close makes QEMU close the files of a backup whose jobs have ended, or that has not begun. The
// error is [ErrPaused] while the guest is paused.
func (b *Backups) Close(ctx context.Context, uuid string, disks []BackupDisk) error {
	return do(ctx, b.conn, "close the files of a backup of", uuid, func(dom *libvirt.Domain) error {
		nodes, err := nodesOf(dom)
		if err != nil {
			return err
		}
		for _, d := range disks {
			if nodes[backupNode(d.Target)] {
				if _, err := command(dom, "blockdev-del", map[string]any{"node-name": backupNode(d.Target)}); err != nil {
					return err
				}
			}
			if err := removeSet(dom, firstBackupSet+d.Set); err != nil {
				return err
			}
		}
		return removeChanges(dom)
	})
}

// End cancels a backup's jobs that have not ended, and forgets the ones that have. It reports
// whether QEMU has none of them any more: a cancelled job takes a while to end. It may be repeated.
// QEMU stops serving the disks first: without the jobs, the disks would change under their readers.
func (b *Backups) End(ctx context.Context, uuid string, disks []BackupDisk) (ended bool, err error) {
	return onDomain(ctx, b.conn, "end a backup of", uuid, func(dom *libvirt.Domain) (bool, error) {
		if err := stopServing(dom); err != nil {
			return false, err
		}
		all, err := jobsOf(dom)
		if err != nil {
			return false, err
		}
		left := false
		for _, d := range disks {
			job, has := all[backupNode(d.Target)]
			if !has {
				continue
			}
			id := map[string]any{"id": backupNode(d.Target)}
			if job.Status != jobConcluded {
				left = true
				_, _ = command(dom, "job-cancel", id) // fails for a job that has just ended
				continue
			}
			if _, err := command(dom, "job-dismiss", id); err != nil {
				return false, err
			}
		}
		return !left, nil
	})
}

// jobRunning and jobConcluded are QEMU's statuses of a job that goes on, and of one that has ended.
const (
	jobRunning   = "running"
	jobConcluded = "concluded"
)

// job is one of QEMU's jobs.
type job struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Error  string `json:"error"`
}

// jobsOf returns QEMU's jobs by their names.
func jobsOf(dom *libvirt.Domain) (map[string]job, error) {
	all, err := query[[]job](dom, "query-jobs", nil)
	if err != nil {
		return nil, err
	}
	named := map[string]job{}
	for _, j := range all {
		named[j.ID] = j
	}
	return named, nil
}

// query runs a command of QEMU's monitor, and returns what QEMU answers.
func query[T any](dom *libvirt.Domain, name string, arguments map[string]any) (T, error) {
	var reply struct {
		Return T `json:"return"`
	}
	text, err := command(dom, name, arguments)
	if err != nil {
		return reply.Return, err
	}
	if err := json.Unmarshal([]byte(text), &reply); err != nil {
		return reply.Return, fmt.Errorf("decode QEMU's reply to %s: %w", name, err)
	}
	return reply.Return, nil
}
