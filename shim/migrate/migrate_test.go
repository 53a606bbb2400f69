package migrate_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate"
	"github.com/nodevirt/nodevirt/shim/migrate/compat"
	"github.com/nodevirt/nodevirt/shim/migrate/handover"
	"github.com/nodevirt/nodevirt/shim/migrate/link"
	"github.com/nodevirt/nodevirt/test/needs"
)

// migration is one between two nodes.
type migration struct {
	source   *handover.Source
	target   *handover.Target
	dial     func(context.Context) (net.Conn, error)
	shape    []byte
	prepared bool
}

// newMigration joins both ends as two shims do. at is called at each step of both.
func newMigration(t *testing.T, from, to *end, at func(handover.Step)) *migration {
	t.Helper()
	m := &migration{}
	name := uuid.NewString()
	own, peer := identity(t), identity(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := to.vm().Sockets.MakeTarget(to.uid, to.uid); err != nil {
		t.Fatal(err)
	}
	target := migrate.NewTarget(to.vm(), to, migrate.Incoming{
		XML: to.xml, Files: to.files,
		Prepared: func(context.Context) error { m.prepared = true; return nil },
	})
	incoming := handover.NewIncoming(name, to.id.String())
	records := handover.NewFile(to.records)
	if err := records.Put(incoming); err != nil {
		t.Fatal(err)
	}
	m.target = handover.NewTarget(incoming, target, records, handover.DefaultLimits(), at)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- link.NewListener(listener, peer, own.Fingerprint(), target.Serve(m.target)).Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	if err := from.vm().Sockets.MakeSource(); err != nil {
		t.Fatal(err)
	}
	dialer := link.NewDialer(own, peer.Fingerprint(), func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", listener.Addr().String())
	})
	m.dial = func(ctx context.Context) (net.Conn, error) { return dialer.Dial(ctx, link.Control) }
	m.source = handover.NewSource(handover.NewSending(name, from.id.String()), stateless{migrate.NewSource(from.vm(), dialer)},
		handover.NewFile(from.records), handover.DefaultLimits(), at)
	text, err := from.MigratableXML(t.Context(), from.id.String())
	if err != nil {
		t.Fatal(err)
	}
	if m.shape, err = compat.Encode(text); err != nil {
		t.Fatal(err)
	}
	return m
}

func identity(t *testing.T) link.Identity {
	t.Helper()
	id, err := link.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// never checks at each step that two guests never run.
func never(t *testing.T, a, b *end, then func(handover.Step)) func(handover.Step) {
	return func(s handover.Step) {
		if a.running(t) && b.running(t) {
			t.Errorf("two guests run at %q", s)
		}
		t.Log(time.Now().Format("05.000"), s)
		then(s)
	}
}

// newPair starts two nodes, and a guest on the first, whose console it returns.
func newPair(t *testing.T) (a, b *end, console *shell) {
	t.Helper()
	id := uuid.New()
	a, b = newEnd(t, id, 64001), newEnd(t, id, 64002)
	a.boot(t)
	console = a.shell(t)
	console.run(t, "NOTE=remembered; printf written > /tmp/x; dd if=/tmp/x of=/dev/vda bs=512 seek=100 conv=sync; sync")
	return a, b, console
}

// TestMigration moves a guest between two nodes' libvirtds: first it fails at several
// steps, and stays; then it moves, and comes back. Its memory, its disk and its console
// are as before each time.
func TestMigration(t *testing.T) {
	needs.Parts(t, "two nodes with libvirtd, and QEMU")
	a, b, console := newPair(t)

	for _, step := range []handover.Step{
		handover.StepDefined, handover.StepBegun, handover.StepPrepared, handover.StepPerformed, handover.StepReceived,
	} {
		t.Run("cancelled at "+string(step), func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			why := errors.New("cancelled")
			var m *migration
			var once sync.Once
			var reached atomic.Bool
			m = newMigration(t, a, b, never(t, a, b, func(s handover.Step) {
				if s == step {
					once.Do(func() {
						reached.Store(true)
						cancel(why)
						if step == handover.StepReceived { // too late for the source, not for the target
							if err := m.target.Refuse(t.Context(), why.Error()); err != nil {
								t.Error(err)
							}
						}
					})
				}
			}))
			err := m.source.Run(ctx, m.dial, m.shape)
			if err == nil {
				t.Error("the migration did not fail")
			}
			t.Log(err)
			if r := m.source.Record(); r.State != handover.Kept || !r.Ended {
				t.Fatalf("source: %+v", r)
			}
			if err := m.target.Refuse(t.Context(), "over"); err != nil || m.target.Record().State != handover.Refused {
				t.Errorf("target: %+v, %v", m.target.Record(), err)
			}
			if !a.running(t) || b.running(t) {
				t.Error("the guest does not run on the source alone")
			}
			if !reached.Load() {
				t.Error("the step was not reached")
			}
			remembers(t, console)
		})
		b.remake(t)
	}
	move(t, a, b)
	a.remake(t)
	move(t, b, a)
}

// TestPausedCopy: a guest that is paused while it is copied goes on at the source if the migration is cancelled, and at
// the target if it is not. An emulated guest can only do the latter with a QEMU that copies it while it runs.
func TestPausedCopy(t *testing.T) {
	needs.Parts(t, "two nodes with libvirtd, and QEMU")
	a, b, console := newPair(t)
	live, err := a.MigratesLive(t.Context(), a.id.String())
	if err != nil {
		t.Fatal(err)
	}
	a.live, a.bandwidth = true, 4
	m, ended, cancel := a.pausedCopy(t, b)
	cancel(errors.New("cancelled"))
	if err := <-ended; err == nil || m.source.Record().State != handover.Kept || !a.running(t) {
		t.Errorf("source: %+v, %v", m.source.Record(), err)
	}
	if err := m.target.Refuse(t.Context(), "over"); err != nil {
		t.Error(err)
	}
	remembers(t, console)
	if !live {
		return
	}
	b.remake(t)
	m, ended, _ = a.pausedCopy(t, b)
	if err := <-ended; err != nil || m.source.Record().State != handover.Left || a.running(t) || !b.running(t) {
		t.Errorf("source: %+v, %v", m.source.Record(), err)
	}
	remembers(t, b.shell(t))
}

// pausedCopy begins to copy the guest, and pauses it when that runs.
func (e *end) pausedCopy(t *testing.T, to *end) (m *migration, ended chan error, cancel context.CancelCauseFunc) {
	t.Helper()
	m = newMigration(t, e, to, never(t, e, to, func(handover.Step) {}))
	ctx, cancel := context.WithCancelCause(t.Context())
	ended = make(chan error, 1)
	go func() { ended <- m.source.Run(ctx, m.dial, m.shape) }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		job, err := e.Job(t.Context(), e.id.String())
		if err == nil && job != nil && job.Processed > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the copy does not begin: %+v, %v", job, err)
		}
	}
	if err := e.Pause(t.Context(), e.id.String()); err != nil {
		t.Fatal(err)
	}
	s, err := e.State(t.Context(), e.id.String())
	if err != nil || s.Status != domain.StatusPaused || s.Reason != domain.ReasonMigrated {
		t.Errorf("the guest is %+v, %v", s, err)
	}
	return m, ended, cancel
}

// move moves the guest and checks it.
func move(t *testing.T, from, to *end) {
	t.Helper()
	m := newMigration(t, from, to, never(t, from, to, func(handover.Step) {}))
	if err := m.source.Run(t.Context(), m.dial, m.shape); err != nil {
		t.Fatal(err)
	}
	if s, g := m.source.Record(), m.target.Record(); s.State != handover.Left || !s.Ended || g.State != handover.Taken {
		t.Fatalf("source %+v, target %+v", s, g)
	}
	if from.running(t) || !to.running(t) || !m.prepared {
		t.Error("the guest does not run on the target alone")
	}
	remembers(t, to.shell(t))
	for _, e := range []*end{from, to} {
		if left, _ := filepath.Glob(filepath.Join(e.vm().Sockets.Dir, "*")); e == from && len(left) > 0 {
			t.Errorf("sockets: %v", left)
		}
	}
	r, found, err := handover.NewFile(from.records).Get()
	if !found || err != nil || r.State != handover.Left {
		t.Errorf("record on disk: %+v, %v", r, err)
	}
}

// remembers checks the guest's memory and disk. It reads the disk without its cache.
func remembers(t *testing.T, console *shell) {
	t.Helper()
	got := console.run(t, "echo 3 > /proc/sys/vm/drop_caches; echo $NOTE; dd if=/dev/vda bs=7 count=1 skip=0 iflag=skip_bytes 2>/dev/null; dd if=/dev/vda bs=512 skip=100 count=1 2>/dev/null | head -c 7")
	if !strings.Contains(got, "remembered") || !strings.HasSuffix(got, "written") {
		t.Errorf("the guest says %q", got)
	}
}

// remake empties an end, as a new pod is: with a fresh overlay, and nothing defined.
func (e *end) remake(t *testing.T) {
	t.Helper()
	if err := errors.Join(e.Destroy(t.Context(), e.id.String()), e.Undefine(t.Context(), e.id.String())); err != nil {
		t.Fatal(err)
	}
	for _, list := range e.files {
		for _, f := range list {
			f.Close()
		}
	}
	if err := os.RemoveAll(e.dir); err != nil {
		t.Fatal(err)
	}
	e.makeFiles(t)
}

// stateless is a source without persistent state.
type stateless struct{ *migrate.Source }

func (stateless) Release(context.Context) error { return nil }
