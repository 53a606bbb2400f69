package migrate

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate/link"
	"github.com/nodevirt/nodevirt/shim/migrate/rpc"
)

// fakeLibvirtd answers calls of migrations. Perform lasts until Abort.
type fakeLibvirtd struct {
	mu        sync.Mutex
	calls     []uint32
	performs  chan struct{} // closed when Perform began
	aborted   chan struct{}
	domains   []string
	state     domain.State
	stateErr  error
	resumeErr error
	dropErr   error
}

func newFake(t *testing.T) (*fakeLibvirtd, VM) {
	t.Helper()
	dir, err := os.MkdirTemp("", "m") // short enough for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "libvirtd")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeLibvirtd{performs: make(chan struct{}), aborted: make(chan struct{})}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { f.serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return f, VM{
		Libvirtd: socket, Name: "vm", UUID: [16]byte{1}, UID: uint32(os.Getuid()), GID: uint32(os.Getgid()),
		Sockets: Sockets{filepath.Join(dir, "s")}, Domains: f,
	}
}

func (f *fakeLibvirtd) serve(c net.Conn) {
	defer c.Close()
	for {
		var head [28]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		_, _ = io.CopyN(io.Discard, c, int64(binary.BigEndian.Uint32(head[:]))-28)
		procedure := binary.BigEndian.Uint32(head[12:])
		f.mu.Lock()
		f.calls = append(f.calls, procedure)
		f.mu.Unlock()
		status := byte(0)
		switch procedure {
		case 305:
			close(f.performs)
			<-f.aborted
			status = 1
		case 164:
			close(f.aborted)
		}
		body := make([]byte, 64)
		binary.BigEndian.PutUint32(head[:], uint32(28+len(body)))
		head[19], head[27] = 1, status
		_, _ = c.Write(append(head[:], body...))
	}
}

func (f *fakeLibvirtd) note(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.domains = append(f.domains, what)
}

func (f *fakeLibvirtd) Define(context.Context, string) error   { f.note("define"); return nil }
func (f *fakeLibvirtd) Undefine(context.Context, string) error { f.note("undefine"); return nil }
func (f *fakeLibvirtd) Destroy(context.Context, string) error  { f.note("destroy"); return nil }
func (f *fakeLibvirtd) Resume(context.Context, string) error   { f.note("resume"); return f.resumeErr }
func (f *fakeLibvirtd) DropCopies(context.Context, string) error {
	f.note("drop")
	return f.dropErr
}

func (f *fakeLibvirtd) State(context.Context, string) (domain.State, error) {
	return f.state, f.stateErr
}

func dialer(t *testing.T) *link.Dialer {
	t.Helper()
	id, err := link.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return link.NewDialer(id, id.Fingerprint(), func(context.Context) (net.Conn, error) { return nil, errors.New("no target") })
}

// TestInterruptedPerform: the end of the context aborts libvirt's job and ends the
// streams, and Keep confirms the end.
func TestInterruptedPerform(t *testing.T) {
	f, vm := newFake(t)
	if err := vm.Sockets.MakeSource(); err != nil {
		t.Fatal(err)
	}
	s := NewSource(vm, dialer(t))
	if _, err := s.Begin(t.Context(), "<domain/>"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-f.performs; cancel() }()
	if _, err := s.Perform(ctx, nil); err == nil {
		t.Error("Perform returns no error")
	} else if _, ok := errors.AsType[*rpc.Error](err); !ok {
		t.Errorf("not libvirtd's error: %v", err)
	}
	if _, err := net.Dial("unix", vm.Sockets.Memory()); err == nil {
		t.Error("the stream's socket is served")
	}
	f.state = domain.State{Status: domain.StatusPaused, Reason: domain.ReasonMigrated}
	if err := s.Keep(t.Context()); err != nil {
		t.Error(err)
	}
	if want := []uint32{66, 1, 302, 305, 66, 1, 164, 307}; !slices.Equal(f.calls, want) {
		t.Errorf("calls %v, want %v", f.calls, want)
	}
	if _, err := os.Stat(vm.Sockets.Dir); !slices.Equal(f.domains, []string{"resume"}) || err == nil {
		t.Errorf("%v; the sockets' folder: %v", f.domains, err)
	}
}

// TestFormerCopies: what an earlier copy of disks left in QEMU goes before libvirt's job begins, or the job does not.
func TestFormerCopies(t *testing.T) {
	f, vm := newFake(t)
	vm.CopyDisks, vm.Disks = true, []string{"vda"}
	f.dropErr = errors.New("a node is busy")
	if _, err := NewSource(vm, dialer(t)).Begin(t.Context(), "<domain/>"); !errors.Is(err, f.dropErr) || len(f.calls) != 0 {
		t.Errorf("%v; calls %v", err, f.calls)
	}
	f.dropErr = nil
	s := NewSource(vm, dialer(t))
	defer func() { s.end().Close() }()
	if _, err := s.Begin(t.Context(), "<domain/>"); err != nil || !slices.Equal(f.domains, []string{"drop", "drop"}) {
		t.Errorf("%v; %v", err, f.domains)
	}
}

// TestKeep has the states in which a shim that restarted finds a guest.
func TestKeep(t *testing.T) {
	for name, tt := range map[string]struct {
		state            domain.State
		stateErr, resume error
		resumed, fails   bool
	}{
		"running":             {state: domain.State{Status: domain.StatusRunning}},
		"stopped by libvirt":  {state: domain.State{Status: domain.StatusPaused, Reason: domain.ReasonMigrated}, resumed: true},
		"stopped, forgotten":  {state: domain.State{Status: domain.StatusPaused, Reason: domain.ReasonOther}, resumed: true},
		"paused by a user":    {state: domain.State{Status: domain.StatusPaused, Reason: domain.ReasonUser}},
		"stopped by a disk":   {state: domain.State{Status: domain.StatusPaused, Reason: domain.ReasonIOError}},
		"ended":               {state: domain.State{Status: domain.StatusShutoff}},
		"unknown":             {stateErr: domain.ErrNotFound},
		"no libvirtd":         {stateErr: domain.ErrUnavailable, fails: true},
		"ended in between":    {state: domain.State{Status: domain.StatusPaused, Reason: domain.ReasonMigrated}, resume: domain.ErrNotRunning, resumed: true},
		"a job that lingers":  {state: domain.State{Status: domain.StatusPaused, Reason: domain.ReasonMigrated}, resume: errors.New("x"), resumed: true, fails: true},
		"crashed in QEMU":     {state: domain.State{Status: domain.StatusPaused, Reason: domain.ReasonCrashed}},
		"being shut down now": {state: domain.State{Status: domain.StatusPaused, Reason: domain.ReasonShutdown}},
	} {
		t.Run(name, func(t *testing.T) {
			f, vm := newFake(t)
			f.state, f.stateErr, f.resumeErr = tt.state, tt.stateErr, tt.resume
			err := NewSource(vm, dialer(t)).Keep(t.Context())
			if (err != nil) != tt.fails || slices.Contains(f.domains, "resume") != tt.resumed {
				t.Errorf("%v, %v", err, f.domains)
			}
		})
	}
}

// TestLeave: without libvirt's confirmation, QEMU is ended.
func TestLeave(t *testing.T) {
	f, vm := newFake(t)
	s := NewSource(vm, dialer(t))
	if _, err := s.Begin(t.Context(), "<domain/>"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // again, as after a restart
		if err := s.Leave(t.Context(), []byte("cookie")); err != nil {
			t.Error(err)
		}
	}
	if want := []uint32{66, 1, 302, 307}; !slices.Equal(f.calls, want) || !slices.Equal(f.domains, []string{"destroy", "destroy"}) {
		t.Errorf("calls %v, %v", f.calls, f.domains)
	}
}
