package handover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
)

const (
	testMigration = "5f3c0c1e-0000-4000-8000-000000000001"
	testVM        = "7d1c0f5a-6d5e-4d0e-8a4c-2f9d1b6a0001"
	testXML       = "<domain><uuid>" + testVM + "</uuid></domain>"
)

// status is what QEMU does on a node.
type status string

const (
	absent  status = "absent"
	waiting status = "waiting" // prepared, without a guest
	paused  status = "paused"
	running status = "running"
)

// world is two nodes and their link. It checks each change of a guest.
type world struct {
	mu sync.Mutex
	// memory counts the source's resumes: a copy from before one is stale. copied is the
	// count of the target's copy. ran means that the target has run the guest.
	memory, copied int
	ran            bool
	// lockedBy is the node whose QEMU has the lock of the guest's PVC, which both nodes see.
	// locked counts the calls that found it with the other's.
	lockedBy *node
	locked   int
	// stateBy is the node that has the lock of the guest's persistent state.
	stateBy    *node
	violations []string
	trace      []string

	source, target *node
	link           *link
	// fault is called at each point, without the lock.
	fault func(p *process, point string)
}

func newWorld() *world {
	w := &world{link: &link{}, fault: func(*process, string) {}}
	w.source = &node{w: w, name: "source", qemu: running}
	w.target = &node{w: w, name: "target", qemu: absent}
	w.lockedBy, w.stateBy = w.source, w.source
	return w
}

// node is what outlives a shim: its records, libvirtd and QEMU.
type node struct {
	w    *world
	name string

	disk     *Record
	qemu     status
	killed   bool // QEMU was killed by a fault
	libvirtd int  // counts its starts
	full     bool // each write fails
	torn     bool // the next one that fails leaves the new record
	process  *process
}

// set changes QEMU's status. The caller holds the lock.
func (n *node) set(s status) {
	w := n.w
	n.qemu = s
	w.trace = append(w.trace, n.name+" is "+string(s))
	bad := func(text string) { w.violations = append(w.violations, text) }
	switch {
	case s == absent:
		if w.lockedBy == n {
			w.lockedBy = nil
		}
		if w.stateBy == n {
			w.stateBy = nil
		}
		return
	case s != running:
		return
	case w.lockedBy != n:
		bad("a guest runs without the lock of its PVC")
	case w.stateBy != n:
		bad("a guest runs without the lock of its persistent state")
	case w.source.qemu == running && w.target.qemu == running:
		bad("two guests run")
	case n == w.source && w.ran:
		bad("the source runs again after the target ran")
	case n == w.target && w.memory != w.copied:
		bad("the target runs a stale copy")
	}
	if n == w.source {
		w.memory++
	} else {
		w.ran = true
	}
}

// process is a shim. A dead one has no effect any more.
type process struct {
	*node
	dead    bool
	stopped chan struct{} // closed when the process continues; nil while it runs
	conns   []net.Conn
	cancel  context.CancelFunc
	ctx     context.Context
}

func (n *node) boot(ctx context.Context) *process {
	p := &process{node: n}
	p.ctx, p.cancel = context.WithCancel(ctx)
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.process = p
	return p
}

func (p *process) kill() {
	p.w.mu.Lock()
	p.dead = true
	p.w.trace = append(p.w.trace, p.name+" dies")
	// The connection that called Prepare ends, and QEMU with it.
	if p.node == p.w.target && p.qemu == waiting {
		p.set(absent)
	}
	conns := p.conns
	p.mu().Unlock()
	p.proceed()
	p.cancel()
	for _, c := range conns {
		c.Close()
	}
}

func (p *process) mu() *sync.Mutex { return &p.w.mu }

func (p *process) stop() {
	p.mu().Lock()
	defer p.mu().Unlock()
	if p.stopped == nil && !p.dead {
		p.stopped = make(chan struct{})
	}
}

func (p *process) proceed() {
	p.mu().Lock()
	defer p.mu().Unlock()
	if p.stopped != nil {
		close(p.stopped)
		p.stopped = nil
	}
}

// pause blocks while the process is stopped.
func (p *process) pause() {
	p.mu().Lock()
	c := p.stopped
	p.mu().Unlock()
	if c != nil {
		<-c
	}
}

// at is a point where a fault can happen.
func (p *process) at(point string) {
	p.mu().Lock()
	p.w.trace = append(p.w.trace, point)
	fault := p.w.fault
	p.mu().Unlock()
	fault(p, point)
	p.pause()
}

var (
	errLocked      = errors.New("failed to get \"write\" lock")
	errDead        = errors.New("the shim is dead")
	errUnavailable = errors.New("libvirtd ended")
	errGone        = errors.New("the domain does not run")
)

// call is a call to libvirtd or a write, with a point before and after its effect.
func (p *process) call(name string, effect func() error) error {
	p.mu().Lock()
	before := p.libvirtd
	p.mu().Unlock()
	p.at(p.name + " before " + name)
	p.mu().Lock()
	if p.dead {
		p.mu().Unlock()
		return errDead
	}
	err := errUnavailable
	if p.libvirtd == before {
		err = effect()
	}
	p.mu().Unlock()
	p.at(p.name + " after " + name)
	p.mu().Lock()
	defer p.mu().Unlock()
	switch {
	case p.dead:
		return errDead
	case p.libvirtd != before:
		return errUnavailable
	}
	return err
}

// Put writes the node's record.
func (p *process) Put(r Record) error {
	name := "write " + string(r.State)
	if r.Ended {
		name += " ended"
	}
	p.at(p.name + " before " + name)
	p.mu().Lock()
	dead, full := p.dead, p.full
	if !dead && (!full || p.torn) {
		p.disk = &r
	}
	if full {
		p.torn = false
	}
	p.mu().Unlock()
	p.at(p.name + " after " + name)
	switch {
	case dead || p.gone():
		return errDead
	case full:
		return errors.New("no space on the disk")
	}
	return nil
}

func (p *process) gone() bool {
	p.mu().Lock()
	defer p.mu().Unlock()
	return p.dead
}

// fakeSource is libvirt on the source.
type fakeSource struct{ *process }

func (v fakeSource) Begin(context.Context, string) ([]byte, error) {
	return []byte("begun"), v.call("Begin", func() error { return v.need(running) })
}

func (v fakeSource) Perform(ctx context.Context, cookie []byte) ([]byte, error) {
	return append(cookie, " performed"...), v.call("Perform", func() error {
		switch {
		case v.need(running) != nil:
			return errGone
		case ctx.Err() != nil || v.w.link.down() || v.w.target.qemu != waiting || v.w.target.process.dead:
			return errors.New("the stream ended")
		}
		v.set(paused)
		v.w.lockedBy = nil
		v.w.copied = v.w.memory
		return nil
	})
}

func (v fakeSource) Release(context.Context) error {
	return v.call("Release", func() error {
		if v.disk.State != HandedOver {
			v.w.violations = append(v.w.violations, "the source releases its state before it hands the guest over")
		}
		v.w.stateBy = nil
		return nil
	})
}

func (v fakeSource) Keep(context.Context) error {
	return v.call("Keep", func() error {
		if v.qemu != paused {
			return nil
		}
		if err := errors.Join(v.lock(), v.lockState()); err != nil {
			return err
		}
		v.set(running)
		return nil
	})
}

func (v fakeSource) Leave(context.Context, []byte) error {
	return v.call("Leave", func() error { v.set(absent); return nil })
}

func (v fakeSource) Running(context.Context) (bool, error) {
	is := false
	err := v.call("Running", func() error { is = v.qemu == running; return nil })
	return is, err
}

// lock gives the node's QEMU the lock of the PVC, unless the other's QEMU has it.
func (p *process) lock() error {
	if p.w.lockedBy != nil && p.w.lockedBy != p.node {
		p.w.locked++
		return errLocked
	}
	p.w.lockedBy = p.node
	return nil
}

// lockState gives the node the lock of the persistent state, unless the other has it.
func (p *process) lockState() error {
	if p.w.stateBy != nil && p.w.stateBy != p.node {
		return errLocked
	}
	p.w.stateBy = p.node
	return nil
}

func (p *process) need(s ...status) error {
	if !slices.Contains(s, p.qemu) {
		return fmt.Errorf("%w: it is %s", errGone, p.qemu)
	}
	return nil
}

// fakeTarget is libvirt on the target.
type fakeTarget struct{ *process }

func (v fakeTarget) Define(context.Context, []byte) (string, error) {
	return testXML, v.call("Define", func() error { return nil })
}

func (v fakeTarget) Prepare(_ context.Context, cookie []byte) ([]byte, error) {
	return append(cookie, " prepared"...), v.call("Prepare", func() error { v.set(waiting); return nil })
}

func (v fakeTarget) Finish(_ context.Context, cookie []byte) ([]byte, error) {
	return append(cookie, " finished"...), v.call("Finish", func() error {
		if err := v.need(waiting); err != nil {
			return err
		}
		if err := errors.Join(v.lock(), v.lockState()); err != nil {
			return err
		}
		v.set(paused)
		return nil
	})
}

func (v fakeTarget) Resume(context.Context) error {
	return v.call("Resume", func() error {
		switch v.qemu {
		case paused:
			v.set(running)
		case absent, waiting:
			return ErrLost
		}
		return nil
	})
}

func (v fakeTarget) Discard(context.Context) error {
	return v.call("Discard", func() error { v.set(absent); return nil })
}
