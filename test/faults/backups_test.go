//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	orders "github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/node"
)

// What a round does while daemons are killed.
const (
	copyPush   = "backup"
	copyPull   = "pull backup"
	copyFreeze = "freeze"
	copySave   = "snapshot with memory"
)

var copyKinds = []string{copyPush, copyPush, copyPush, copyPull, copyPull, copyFreeze, copySave, copySave}

var copyVictims = []string{node.Shim, node.Shim, node.Shim, node.Shim, node.Libvirtd, node.Libvirtd, node.Containerd, ownQEMU}

const (
	// copyTime is how long after its begin what a round does may be hit: about as long as it takes.
	copyTime = time.Second
	// thawTime is how long a guest stays frozen, or paused, at most once the process that froze or held it has died.
	thawTime = 10 * time.Second
	// slack is what a probe of an emulated guest may take beyond that, with the restart of what was killed.
	slack = 5 * time.Second
)

// copyPlan is a round. It depends on nothing but its seed.
type copyPlan struct {
	plan
	kind    string
	quiesce bool
	full    bool // a backup follows no checkpoint
	// gone is how long the daemons that were killed are away, and dies whether the controller is killed, too: it
	// gives no order again.
	gone time.Duration
	dies bool
}

func newCopyPlan(seed uint64) copyPlan {
	r := rand.New(rand.NewPCG(seed, 2))
	p := copyPlan{
		plan: plan{seed: seed, calls: life}, kind: copyKinds[r.IntN(len(copyKinds))], quiesce: r.IntN(4) > 0, full: r.IntN(2) == 0,
		gone: time.Duration(r.IntN(2000)) * time.Millisecond, dies: r.IntN(4) == 0,
	}
	for n := 1 + r.IntN(2); len(p.kills) < n; {
		if v := copyVictims[r.IntN(len(copyVictims))]; !p.hasVictim(v) {
			p.kills = append(p.kills, kill{v, time.Duration(r.Int64N(int64(copyTime)))})
		}
	}
	slices.SortFunc(p.kills, func(a, b kill) int { return int(a.after - b.after) })
	return p
}

func (p copyPlan) String() string {
	return fmt.Sprintf("seed %d: in a %s (quiesce: %t, full: %t): %v, away for %s; the controller dies: %t", p.seed, p.kind, p.quiesce, p.full, p.kills, p.gone, p.dies)
}

// TestCopies backs up and saves a VM, and freezes it for snapshots, while daemons and QEMU are killed. No copy that
// is not whole is offered, and those that are have both disks of one moment. No checkpoint lies: what the next
// backup has of the changes since one makes the disks. A guest is not frozen for long.
func TestCopies(t *testing.T) {
	assert.NilError(t, converge(t.Context(), sameSecrets(suite.secrets)))
	b := newBackupVM(t)
	r := begin(t)
	b.round = r
	t.Cleanup(func() {
		if err := b.leave(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	b.boot(t)
	c := &copies{backupVM: b}
	c.backedUp(t, "first", false)
	for i := range uint64(*rounds+3) / 4 {
		p := newCopyPlan(*seed + i)
		ok := t.Run(fmt.Sprint(p.seed), func(t *testing.T) {
			r.kills = append(r.kills, p.kills...) // what they leave for good is no fault
			c.copyPlan = p
			c.round(t)
			if t.Failed() {
				t.Logf("%s\nagain: make test-faults FLAGS=-run=TestCopies ROUNDS=1 SEED=%d\n%s", p, p.seed, suite.LogTail(node.Shim, 25))
			}
		})
		if !ok {
			return // the chain of backups may have ended
		}
	}
}

// copies are the VM's backups.
type copies struct {
	*backupVM
	copyPlan
	chain  chain
	latest string // the checkpoint that the next backup follows
}

// request is an order for a backup that follows the latest one.
func (c *copies) request(name string) orders.BackupFiles {
	return orders.BackupFiles{
		Name: name, Volume: "copies", Container: c.attachment.container, Folder: "vm/" + name, Checkpoint: name, Since: c.latest,
		Disks: []orders.BackupFile{{Disk: "files", File: "files.qcow2"}, {Disk: "block", File: "block.qcow2"}},
	}
}

// concludes repeats an order for a backup, as a controller does, until the backup has ended. One whose VM has ended
// is none.
func (c *copies) concludes(ctx context.Context, request orders.BackupFiles) (answer orders.Backup, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*bound)
	defer cancel()
	for ctx.Err() == nil {
		answer, err = order[orders.Backup](ctx, c.backupVM, suite.cri, orders.BackUp, request)
		if err == nil && answer.State == orders.BackupReady {
			answer, err = order[orders.Backup](ctx, c.backupVM, suite.cri, orders.BackupFinish, orders.Name{Name: request.Name})
		}
		if err == nil && (answer.State == orders.BackupCompleted || answer.State == orders.BackupFailed) {
			return answer, nil
		}
		if c.ended(ctx) {
			return orders.Backup{State: orders.BackupNone}, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return answer, fmt.Errorf("backup %s has not ended: %+v, %w", request.Name, answer, err)
}

// backedUp backs up the VM while its guest is idle: the backups make the disks.
func (c *copies) backedUp(t *testing.T, name string, incremental bool) {
	t.Helper()
	c.stop()
	answer, err := c.concludes(t.Context(), c.request(name))
	assert.NilError(t, err)
	assert.Equal(t, answer.State, orders.BackupCompleted, answer.Message)
	assert.Equal(t, answer.Incremental, incremental, "%s: %s", name, answer.Warning)
	c.chain = c.chain.grown(t, filepath.Join(c.folder, "vm", name), incremental)
	for i, disk := range c.disks() {
		qemuImg(t, "compare", "-U", "-f", "qcow2", "-F", "raw", c.chain.last(i), disk)
	}
	c.latest = name
	c.work(t)
}

func (c *copies) round(t *testing.T) {
	flushed := c.next.Load()
	switch c.kind {
	case copyPush, copyPull:
		c.backup(t, flushed)
	case copyFreeze:
		c.freeze(t)
	case copySave:
		c.save(t, flushed)
	}
	killed := c.hasVictim(ownQEMU)
	if killed {
		c.again(t)
	} else {
		c.goesOn(t)
	}
	t.Logf("%s; the slowest probe took %s; %d records", c.copyPlan, c.slow().Round(time.Millisecond), c.next.Load())
	// A guest that was saved has given up its disks meanwhile.
	c.backedUp(t, fmt.Sprintf("after-%d", c.seed), !killed)
}

// again boots the VM that was killed. The disks have what the guest has flushed.
func (c *copies) again(t *testing.T) {
	t.Helper()
	assert.NilError(t, c.leave(t.Context()))
	assert.NilError(t, isOneMoment(c.disks(), c.next.Load()))
	c.boot(t)
}

// goesOn waits until the guest writes to its disks and its file system. It was not stopped for longer than it may.
func (c *copies) goesOn(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), thawTime+slack)
	defer cancel()
	assert.NilError(t, c.asks(ctx, "probe\n"), "the guest is frozen")
	from := c.next.Load()
	assert.NilError(t, converge(t.Context(), func(context.Context) error {
		if now := c.next.Load(); now < from+3 {
			return fmt.Errorf("the guest wrote %d records, and %d more", from, now-from)
		}
		return nil
	}))
	c.stop()
	if c.slow() > thawTime+slack {
		t.Errorf("the guest was frozen for %s", c.slow())
	}
}

// slow is how long the guest was frozen or paused at most, and a little more.
func (c *copies) slow() time.Duration { return time.Duration(c.slowest.Load()) }

// breaks calls do with a connection to the shim and, meanwhile, kills the victims. It starts daemons again after a
// while, and returns when do has.
func (c *copies) breaks(t *testing.T, do func(ctx context.Context, by runtimeapi.RuntimeServiceClient)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	by, done := c.dial(t), make(chan struct{})
	begun := time.Now()
	go func() {
		defer close(done)
		do(ctx, by)
	}()
	var down []string
	var errs []error
	for _, k := range c.kills {
		time.Sleep(time.Until(begun.Add(k.after)))
		isDown, err := c.kill(t.Context(), k.victim, *c.pod)
		if isDown {
			down = append(down, k.victim)
		}
		errs = append(errs, err)
	}
	if len(down) > 0 {
		time.Sleep(c.gone)
	}
	errs = append(errs, resume(t.Context(), down...))
	<-done
	assert.NilError(t, errors.Join(errs...))
}

// backup makes a backup, and looks whether it is whole or nothing. No client reads a pull backup, and the next
// backup does not follow it.
func (c *copies) backup(t *testing.T, flushed int64) {
	request := c.request(fmt.Sprintf("broken-%d", c.seed))
	request.Quiesce, request.Pull = c.quiesce, c.kind == copyPull
	if c.full {
		request.Since, request.Keep = "", []string{c.latest}
	}
	c.breaks(t, func(ctx context.Context, by runtimeapi.RuntimeServiceClient) {
		_, _ = order[orders.Backup](ctx, c.backupVM, by, orders.BackUp, request) // it may be cut off
	})
	if c.dies {
		c.isThawed(t, time.Now())
	}
	answer, err := c.concludes(t.Context(), request)
	assert.NilError(t, err)
	t.Logf("the backup: %+v", answer)
	whole := []string{request.Folder, request.Folder + "/block.qcow2", request.Folder + "/files.qcow2"}
	assert.NilError(t, converge(t.Context(), func(context.Context) error {
		left := c.inVolume(t, request.Folder)
		isWhole := !request.Pull && slices.Equal(left, whole)
		switch {
		case answer.State == orders.BackupCompleted && isWhole, len(left) == 0 && (request.Pull || answer.State != orders.BackupCompleted):
		case answer.State == orders.BackupNone && isWhole: // the VM ended after the backup did
		default:
			return fmt.Errorf("of a backup that is %s the volume has %q", answer.State, left)
		}
		return nil
	}))
	if answer.State == orders.BackupCompleted && !request.Pull {
		c.chain = c.chain.grown(t, filepath.Join(c.folder, request.Folder), answer.Incremental)
		assert.NilError(t, isOneMoment(c.chain.restored(t), flushed))
		c.latest = request.Name
	}
}

// isThawed wants the guest to go on some time after the last order that froze or held it, unless the guest was
// killed.
func (c *copies) isThawed(t *testing.T, last time.Time) {
	t.Helper()
	if c.hasVictim(ownQEMU) {
		return
	}
	ctx, cancel := context.WithDeadline(t.Context(), last.Add(thawTime+slack))
	defer cancel()
	assert.NilError(t, c.asks(ctx, "probe\n"), "the guest is frozen")
	t.Logf("the guest went on %s after the last order", time.Since(last).Round(time.Millisecond))
}

// freeze freezes the guest for a while, as a controller does for snapshots, and leaves it frozen.
func (c *copies) freeze(t *testing.T) {
	last := time.Now()
	c.breaks(t, func(ctx context.Context, by runtimeapi.RuntimeServiceClient) {
		_, err := c.control(ctx, by, "freeze", thawTime.String())
		for begun := last; err == nil && time.Since(begun) < copyTime; _, err = c.control(ctx, by, "keep-frozen", thawTime.String()) {
			last = time.Now()
			time.Sleep(200 * time.Millisecond)
		}
	})
	c.isThawed(t, last)
}

// save saves the guest's memory, and copies its disks while it is held.
func (c *copies) save(t *testing.T, flushed int64) {
	request := orders.Save{Volume: "copies", Container: c.attachment.container, Disks: []string{"files", "block"}, Begin: true}
	folder, last := t.TempDir(), time.Now()
	var paths []string
	var saved orders.Saved
	c.breaks(t, func(ctx context.Context, by runtimeapi.RuntimeServiceClient) {
		saved, paths = c.saves(ctx, t, by, request, folder)
		last = time.Now()
	})
	c.isThawed(t, last)
	t.Logf("the save: %+v", saved)
	archive := filepath.Join(c.folder, vmspec.CheckpointFile)
	if saved.State == orders.SaveCompleted {
		_, err := os.Stat(archive)
		assert.NilError(t, err)
		assert.NilError(t, isOneMoment(paths, flushed))
	}
	assert.NilError(t, converge(t.Context(), func(context.Context) error {
		partial := func(name string) bool { return strings.HasSuffix(name, ".partial") }
		if left := c.inVolume(t, ""); slices.ContainsFunc(left, partial) {
			return fmt.Errorf("the volume has %q", left)
		}
		return nil
	}))
	if err := os.Remove(archive); err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
}

// saves orders a save until it has ended, and returns copies of the disks. It gives up at the first error, and
// while it holds the guest if it dies.
func (c *copies) saves(ctx context.Context, t *testing.T, by runtimeapi.RuntimeServiceClient, request orders.Save, folder string) (saved orders.Saved, paths []string) {
	var err error
	for ; saved.State != orders.SaveHeld; request.Begin = false {
		saved, err = order[orders.Saved](ctx, c.backupVM, by, orders.MemorySave, request)
		if err != nil || saved.State == orders.SaveFailed || saved.State == orders.SaveNone {
			return saved, nil
		}
	}
	if c.dies {
		return saved, nil
	}
	if paths, err = c.copied(ctx, folder); err != nil {
		t.Error(err)
	}
	// The copies are of one moment if the guest is still held.
	if saved, err = order[orders.Saved](ctx, c.backupVM, by, orders.MemorySave, request); err != nil || saved.State != orders.SaveHeld {
		return orders.Saved{}, nil
	}
	for err == nil && (saved.State == orders.SaveHeld || saved.State == orders.SaveWriting) {
		saved, err = order[orders.Saved](ctx, c.backupVM, by, orders.MemorySaveEnd, orders.Name{Name: request.Volume})
	}
	if err != nil {
		return orders.Saved{}, nil
	}
	return saved, paths
}
