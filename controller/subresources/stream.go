package subresources

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/exec"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// codeTakenOver is the exit code of a console's client that a newer one has ended; package
// guest of the shim has the same.
const codeTakenOver = 75

// streams connects callers to consoles, displays and ports of VMs.
type streams struct {
	authorizer interface {
		authorize(ctx context.Context, c *call) error
	}
	dialer interface {
		dial(ctx context.Context, p *corev1.Pod, port uint16) (*connection, error)
		dialConsole(ctx context.Context, p *corev1.Pod) (*connection, error)
		dialDisplay(ctx context.Context, p *corev1.Pod) (*connection, error)
		dialUSB(ctx context.Context, p *corev1.Pod) (*connection, error)
		dialVSOCK(ctx context.Context, p *corev1.Pod, port uint32) (*connection, error)
	}
	found interface {
		instances
		pods
		guests
	}
	connections *connections
}

// join passes bytes between the caller and a VM, and counts that as a connection; see [call.join].
func (s *streams) join(ctx context.Context, c *call, kind string, server *connection, next func(context.Context) *connection) error {
	defer s.connections.begin(client.ObjectKey{Namespace: c.namespace, Name: c.name}, kind)()
	return c.join(ctx, server, next)
}

// console is the machine's serial console, for one caller at a time: a newer one ends it,
// wherever its connection comes from. It stays with a guest that moves to another node. The node knows of a caller before the caller has its connection: of two
// callers that come one after the other, the second is the newer.
func (s *streams) console(ctx context.Context, c *call) error {
	vmi, found, err := s.found.running(ctx, c)
	if err != nil {
		return err
	}
	if on := vmi.Spec.Domain.Devices.AutoattachSerialConsole; on != nil && !*on {
		return apierrors.NewBadRequest("No serial consoles are present.")
	}
	server, err := s.dialer.dialConsole(ctx, found)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	return s.join(ctx, c, kindConsole, server, s.followed(c, vmi, found))
}

// vncPort is where a pod's node serves its machine's display.
const vncPort = 5900

// vnc is the machine's display. As with KubeVirt a caller may ask to disturb no other.
func (s *streams) vnc(ctx context.Context, c *call) error {
	vmi, found, err := s.found.running(ctx, c)
	if err != nil {
		return err
	}
	if !hasDisplay(vmi) { // else it would be the guest's own port
		return apierrors.NewBadRequest("No graphics devices are present. Set autoattachGraphicsDevice: true")
	}
	dial := func() (*connection, error) { return s.dialer.dial(ctx, found, vncPort) }
	if preserve, err := strconv.ParseBool(c.URL.Query().Get("preserveSession")); err == nil && preserve {
		dial = func() (*connection, error) { return s.dialer.dialDisplay(ctx, found) }
	}
	server, err := dial()
	if ended := (exec.CodeExitError{}); errors.As(err, &ended) && ended.Code == codeInUse {
		return apierrors.NewServiceUnavailable("Active VNC connection. Request denied.")
	}
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	return s.join(ctx, c, kindDisplay, server, nil)
}

// usbredir is a free slot of the machine for a USB device of the caller's.
func (s *streams) usbredir(ctx context.Context, c *call) error {
	vmi, found, err := s.found.running(ctx, c)
	if err != nil {
		return err
	}
	if vmi.Spec.Domain.Devices.ClientPassthrough == nil {
		return c.conflict("Not configured with USB Redirection")
	}
	server, err := s.dialer.dialUSB(ctx, found)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	return s.join(ctx, c, kindUSB, server, nil)
}

// vsock is a port of the machine's VSOCK. KubeVirt's default is TLS between its node and the guest, which asks
// the node for the authority of its clients' certificates. nodevirt has none, so callers must turn TLS off.
func (s *streams) vsock(ctx context.Context, c *call) error {
	query := c.URL.Query()
	port, err := strconv.ParseUint(query.Get("port"), 10, 32)
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("port %.20q is no number from 0 to 4294967294", query.Get("port")))
	}
	if encrypted, err := strconv.ParseBool(cmp.Or(query.Get("tls"), "true")); err != nil || encrypted {
		return apierrors.NewBadRequest("nodevirt has no certificates for guests' VSOCK: set tls=false")
	}
	vmi, found, err := s.found.running(ctx, c)
	if err != nil {
		return err
	}
	if on := vmi.Spec.Domain.Devices.AutoattachVSOCK; on == nil || !*on {
		return apierrors.NewBadRequest("VSOCK is not attached.")
	}
	server, err := s.dialer.dialVSOCK(ctx, found, uint32(port))
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	return c.join(ctx, server, nil)
}

// hasDisplay reports whether a VM has a display: only if its spec requests one.
func hasDisplay(vmi *kubevirt.VirtualMachineInstance) bool {
	on := vmi.Spec.Domain.Devices.AutoattachGraphicsDevice
	return on != nil && *on
}

// portForward is a TCP port of the guest, or of the pod where the guest has none. The display's is for
// those alone who may see that.
func (s *streams) portForward(ctx context.Context, c *call) error {
	port, err := strconv.ParseUint(c.PathValue("port"), 10, 16)
	if err != nil || port == 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("port %q is no number from 1 to 65535", c.PathValue("port")))
	}
	switch protocol := c.PathValue("protocol"); protocol {
	case "", "tcp":
	case "udp":
		return missing("nodevirt forwards no UDP: Kubernetes' port-forward has TCP alone")
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("protocol %q is neither tcp nor udp", protocol))
	}
	vmi, found, err := s.found.running(ctx, c)
	if err != nil {
		return err
	}
	if port == vncPort && hasDisplay(vmi) {
		display := *c
		display.resource, display.subresource = "virtualmachineinstances", "vnc"
		if err := s.authorizer.authorize(ctx, &display); err != nil {
			return err
		}
	}
	server, err := s.dialer.dial(ctx, found, uint16(port))
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	return s.join(ctx, c, kindPort, server, nil)
}

// join passes bytes between the caller and a connection, which it closes, until one of them has ended:
// WebSocket knows no half-closed connections. A connection that next returns, unless it is nil, continues
// one that the node has ended.
func (c *call) join(ctx context.Context, server *connection, next func(context.Context) *connection) error {
	node := &onward{next: next, now: server}
	client, err := c.upgrade()
	if err != nil {
		_ = node.Close()
		return nil // the upgrader has replied
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go client.keep(ctx)
	callers, nodes, left := make(chan error, 1), make(chan error, 1), make(chan struct{})
	go func() {
		defer close(left)
		_, err := io.CopyBuffer(struct{ io.Writer }{node}, struct{ io.Reader }{client}, make([]byte, chunk))
		callers <- err
		client.drain()
	}()
	go func() {
		nodes <- node.copyTo(ctx, client)
		_ = node.Close() // it has no next one any more
	}()
	select {
	case err = <-callers:
	case err = <-nodes:
	case <-ctx.Done():
	}
	cancel()
	_ = node.Close()
	if takenOver(err) {
		_ = client.Close() // as KubeVirt does: its clients then say what may have happened
		return nil
	}
	if errors.Is(err, io.EOF) { // of a write: the node has ended
		err = nil
	}
	client.end(err, left)
	return nil
}

// takenOver reports whether a console ended since a newer caller has it.
func takenOver(err error) bool {
	exit, ok := errors.AsType[exec.CodeExitError](err)
	return ok && exit.Code == codeTakenOver
}

// followed connects to the console of an instance's guest wherever a migration has moved it. The
// returned function is for the end of a connection; it returns nil if the guest has not moved.
func (s *streams) followed(c *call, vmi *kubevirt.VirtualMachineInstance, from *corev1.Pod) func(context.Context) *connection {
	uid, at := vmi.UID, from.Name
	read := func(ctx context.Context) *kubevirt.VirtualMachineInstance {
		now, err := s.found.instance(ctx, c)
		if err != nil || now.UID != uid {
			return nil
		}
		return now
	}
	return func(ctx context.Context) *connection {
		now := moved(ctx, read, at)
		if now == nil {
			return nil
		}
		to, err := s.found.podOf(ctx, now)
		if err != nil {
			return nil
		}
		server, err := s.dialer.dialConsole(ctx, to)
		if err != nil {
			return nil
		}
		at = to.Name
		return server
	}
}
