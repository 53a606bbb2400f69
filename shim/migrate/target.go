package migrate

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"

	"github.com/google/uuid"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate/compat"
	"github.com/nodevirt/nodevirt/shim/migrate/handover"
	"github.com/nodevirt/nodevirt/shim/migrate/link"
	"github.com/nodevirt/nodevirt/shim/migrate/rpc"
)

// Files passes the files of FD groups to libvirt until release.
type Files interface {
	Associate(ctx context.Context, uuid string, files map[string][]*os.File) (release func(), err error)
}

// Incoming is what the target's node has made for the VM.
type Incoming struct {
	// XML is the domain as this node describes it.
	XML string
	// Files are the descriptors of its FD groups. They stay the caller's, until Prepare.
	Files map[string][]*os.File
	// Prepared is called when QEMU waits for the guest, before any memory arrives: the
	// caller moves QEMU into its cgroup. An error refuses the guest.
	Prepared func(context.Context) error
}

// Target is the VM on the node that it comes to, as [handover.NewTarget] needs it.
type Target struct {
	vm       VM
	files    Files
	incoming Incoming

	mu      sync.Mutex
	text    string    // the domain with the source's shape
	conn    *rpc.Conn // from Prepare to Finish: QEMU ends with it
	release func()    // of the files
}

// NewTarget returns the target.
func NewTarget(vm VM, files Files, in Incoming) *Target {
	return &Target{vm: vm, files: files, incoming: in}
}

func (t *Target) flags() rpc.Flags {
	f := rpc.Live | rpc.Paused
	if t.vm.CopyDisks {
		f |= rpc.CopyDisks
	}
	return f
}

// Define defines the domain with the source's shape.
func (t *Target) Define(ctx context.Context, shape []byte) (string, error) {
	s, err := compat.Decode(shape)
	if err != nil {
		return "", err
	}
	text, err := compat.Apply(t.incoming.XML, s)
	if err != nil {
		return "", err
	}
	t.mu.Lock()
	t.text = text
	t.mu.Unlock()
	return text, t.vm.Domains.Define(ctx, text)
}

// Prepare starts QEMU, which listens on the target's sockets.
func (t *Target) Prepare(ctx context.Context, cookie []byte) ([]byte, error) {
	if err := compat.CheckCookie(cookie, t.uuid()); err != nil {
		return nil, err
	}
	t.mu.Lock()
	text, err := compat.Rename(t.text, compat.CookieName(cookie))
	t.mu.Unlock()
	if err != nil {
		return nil, err
	}
	release, err := t.files.Associate(ctx, t.uuid(), t.incoming.Files)
	if err != nil {
		return nil, err
	}
	conn, err := rpc.Dial(ctx, t.vm.Libvirtd)
	t.mu.Lock()
	t.release, t.conn = release, conn
	p := rpc.Parameters{DestinationXML: text, DestinationName: t.vm.Name, URI: uri(t.vm.Sockets.Memory())}
	t.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if t.vm.CopyDisks {
		p.Disks, p.DisksURI = t.vm.Disks, uri(t.vm.Sockets.Disks())
	}
	out, err := conn.Prepare(ctx, p, cookie, t.flags())
	if err != nil {
		return nil, err
	}
	return out, t.incoming.Prepared(ctx)
}

// Finish completes the guest, which stays paused.
func (t *Target) Finish(ctx context.Context, cookie []byte) ([]byte, error) {
	if err := compat.CheckCookie(cookie, t.uuid()); err != nil {
		return nil, err
	}
	t.mu.Lock()
	conn := t.conn
	t.mu.Unlock()
	return conn.Finish(ctx, t.vm.Name, cookie, t.flags(), false)
}

// Resume runs the guest.
func (t *Target) Resume(ctx context.Context) error {
	err := t.vm.Domains.Resume(ctx, t.uuid())
	if errors.Is(err, domain.ErrNotRunning) || errors.Is(err, domain.ErrNotFound) {
		err = handover.ErrLost
	}
	if err == nil {
		t.close()
	}
	return err
}

// Discard ends QEMU and removes the definition.
func (t *Target) Discard(ctx context.Context) error {
	t.mu.Lock()
	conn := t.conn
	t.mu.Unlock()
	if conn != nil {
		_, _ = conn.Finish(ctx, t.vm.Name, nil, t.flags(), true) // Destroy ends what this leaves
	}
	t.close()
	if err := t.vm.Domains.Destroy(ctx, t.uuid()); err != nil {
		return err
	}
	return errors.Join(t.vm.Domains.Undefine(ctx, t.uuid()), t.vm.Sockets.Remove())
}

// close ends the connections of the migration.
func (t *Target) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.release != nil {
		t.release()
	}
	if t.conn != nil {
		t.conn.Close()
	}
	t.release, t.conn = nil, nil
}

// Serve serves one of the source's connections: messages go to receiver, memory and
// disks to QEMU. It is the function of [link.NewListener].
func (t *Target) Serve(receiver *handover.Target) func(context.Context, link.Stream, net.Conn) {
	return func(ctx context.Context, s link.Stream, conn net.Conn) {
		switch s {
		case link.Control:
			_ = receiver.Serve(ctx, conn) // the record has the outcome
		case link.Memory:
			_ = link.Deliver(ctx, conn, t.vm.Sockets.Memory()) // Finish fails if the stream does
		case link.Disks:
			_ = link.Deliver(ctx, conn, t.vm.Sockets.Disks())
		}
	}
}

func (t *Target) uuid() string { return format(t.vm.UUID) }

func format(id [16]byte) string { return uuid.UUID(id).String() }
