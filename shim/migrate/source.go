package migrate

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate/compat"
	"github.com/nodevirt/nodevirt/shim/migrate/link"
	"github.com/nodevirt/nodevirt/shim/migrate/rpc"
)

// grace is the time that libvirtd has to return from Perform after its streams ended.
const grace = 30 * time.Second

// VM is a VM at one libvirtd.
type VM struct {
	// Libvirtd is the path of libvirtd's socket.
	Libvirtd string
	Name     string
	UUID     [16]byte
	// UID and GID are QEMU's.
	UID, GID uint32
	Sockets  Sockets
	// Bandwidth bounds the copy, in MiB a second; 0 is no bound. Live lets the guest run while its
	// memory is copied, and Converge allows QEMU to slow a guest down then that writes faster than
	// is copied. All are the source's.
	Bandwidth uint64
	Live      bool
	Converge  bool
	// CopyDisks says that disks are copied, and Disks which: names in the guest, such as
	// vda. Both ends must agree.
	CopyDisks bool
	Disks     []string
	// OtherFiles says that the source's domain names files by descriptors of QEMU, whose file system
	// libvirt can't check.
	OtherFiles bool

	Domains Domains
}

// Domains controls the domain on the way that the shim has besides migrations.
type Domains interface {
	Define(ctx context.Context, text string) error
	Undefine(ctx context.Context, uuid string) error
	Resume(ctx context.Context, uuid string) error
	Destroy(ctx context.Context, uuid string) error
	DropCopies(ctx context.Context, uuid string) error
	State(ctx context.Context, uuid string) (domain.State, error)
}

// Source is the VM on the node that it leaves, as [handover.NewSource] needs it.
type Source struct {
	vm     VM
	dialer *link.Dialer

	mu   sync.Mutex
	conn *rpc.Conn // from Begin to the end
	stop func()    // ends the relays, and returns when they have ended
}

// NewSource returns the source. The dialer reaches the target.
func NewSource(vm VM, dialer *link.Dialer) *Source { return &Source{vm: vm, dialer: dialer} }

func (s *Source) domain() rpc.Domain { return rpc.Domain{Name: s.vm.Name, UUID: s.vm.UUID} }

func (s *Source) flags() rpc.Flags {
	f := rpc.Protected
	if s.vm.Live {
		f |= rpc.Live
	}
	if s.vm.CopyDisks {
		f |= rpc.CopyDisks
	}
	if s.vm.Live && s.vm.Converge {
		f |= rpc.Converge
	}
	if s.vm.OtherFiles {
		f |= rpc.Unsafe
	}
	return f
}

func (s *Source) parameters() rpc.Parameters {
	p := rpc.Parameters{URI: uri(s.vm.Sockets.Memory()), Bandwidth: s.vm.Bandwidth}
	if s.vm.CopyDisks {
		p.Disks, p.DisksURI = s.vm.Disks, uri(s.vm.Sockets.Disks())
	}
	return p
}

// Begin starts libvirt's job. The domain has another name on each node, and libvirt
// wants the source's here.
func (s *Source) Begin(ctx context.Context, text string) ([]byte, error) {
	text, err := compat.Rename(text, s.vm.Name)
	if err != nil {
		return nil, err
	}
	if s.vm.CopyDisks {
		if err := s.vm.Domains.DropCopies(ctx, s.uuid()); err != nil {
			return nil, err
		}
	}
	conn, err := rpc.Dial(ctx, s.vm.Libvirtd)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.conn = conn
	s.mu.Unlock()
	p := rpc.Parameters{DestinationXML: text, Disks: s.parameters().Disks}
	return conn.Begin(ctx, s.domain(), p, s.flags())
}

// Perform relays the streams and copies the guest. When ctx ends, it ends the streams
// and libvirt's job, and returns.
func (s *Source) Perform(ctx context.Context, cookie []byte) ([]byte, error) {
	if err := s.relay(ctx); err != nil {
		return nil, err
	}
	call, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	interrupt := context.AfterFunc(ctx, func() {
		s.stopRelays()
		within, end := context.WithTimeout(call, grace)
		defer end()
		_ = s.abort(within) // Perform may have returned
		<-within.Done()
		cancel()
	})
	defer interrupt()
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	return conn.Perform(call, s.domain(), s.parameters(), cookie, s.flags())
}

// relay serves the source's sockets until stopRelays. The streams end with the
// migration, not with the context of one call.
func (s *Source) relay(ctx context.Context) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	listeners, err := s.vm.Sockets.listen(ctx, s.vm.UID, s.vm.GID)
	if err != nil {
		cancel()
		return err
	}
	var all sync.WaitGroup
	for stream, l := range listeners {
		all.Go(func() { _ = s.dialer.Forward(ctx, l, stream) }) // Perform fails if a stream does
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop = func() { cancel(); all.Wait() }
	return nil
}

func (s *Source) stopRelays() {
	s.mu.Lock()
	stop := s.stop
	s.stop = nil
	s.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// abort ends libvirt's job on another connection than Perform's.
func (s *Source) abort(ctx context.Context) error {
	conn, err := rpc.Dial(ctx, s.vm.Libvirtd)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Abort(ctx, s.domain())
}

// end ends the streams and returns Begin's connection, if any, which the caller closes.
func (s *Source) end() *rpc.Conn {
	s.stopRelays()
	s.mu.Lock()
	defer s.mu.Unlock()
	conn := s.conn
	s.conn = nil
	return conn
}

// Keep ends libvirt's job and resumes a guest that the job stopped.
func (s *Source) Keep(ctx context.Context) error {
	conn := s.end()
	if conn != nil {
		// It fails if libvirtd restarted. The state below shows what is left to do.
		_ = conn.Confirm(ctx, s.domain(), rpc.Parameters{}, nil, s.flags(), true)
		conn.Close()
	} else {
		_ = s.abort(ctx) // a restarted shim's Perform; usually it has ended
	}
	state, err := s.vm.Domains.State(ctx, s.uuid())
	switch {
	case errors.Is(err, domain.ErrNotFound):
		return nil
	case err != nil:
		return err
	case stopped(state):
		err = s.vm.Domains.Resume(ctx, s.uuid())
	}
	if errors.Is(err, domain.ErrNotRunning) || errors.Is(err, domain.ErrNotFound) {
		err = nil // the guest ended
	}
	return errors.Join(err, s.vm.Sockets.Remove())
}

// stopped reports whether libvirt's job stopped the guest. A libvirtd that restarted
// since may not know the reason.
func stopped(s domain.State) bool {
	return s.Status == domain.StatusPaused && (s.Reason == domain.ReasonMigrated || s.Reason == domain.ReasonOther)
}

// Leave ends QEMU. libvirtd reports the end as a migration if it can confirm it.
func (s *Source) Leave(ctx context.Context, cookie []byte) error {
	if conn := s.end(); conn != nil {
		if cookie != nil {
			_ = conn.Confirm(ctx, s.domain(), rpc.Parameters{}, cookie, s.flags(), false)
		}
		conn.Close()
	}
	return errors.Join(s.vm.Domains.Destroy(ctx, s.uuid()), s.vm.Sockets.Remove())
}

// Running reports whether the guest runs.
func (s *Source) Running(ctx context.Context) (bool, error) {
	state, err := s.vm.Domains.State(ctx, s.uuid())
	if errors.Is(err, domain.ErrNotFound) {
		return false, nil
	}
	return state.Status == domain.StatusRunning, err
}

func (s *Source) uuid() string { return format(s.vm.UUID) }
