// Package cri serves CRI to the kubelet and to crictl. It answers calls for VM
// containers itself and forwards all other calls to containerd byte for byte.
//
// It owns which calls are forwarded, rewritten or merged, and the gRPC codes of
// errors. It forwards every RPC without a route, including RPCs that CRI does not
// have yet. It leaves VM containers themselves to package vm.
package cri

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/metrics"
	"github.com/nodevirt/nodevirt/shim/vminfo"
)

// maxMessage is the largest message in bytes, either way. containerd's is 16 MiB.
const maxMessage = 64 << 20

// sandboxes are the pod sandboxes of VMs; package sandbox's Sandboxes.
type sandboxes interface {
	Check(config *runtimeapi.PodSandboxConfig) error
	Intend(handler string, config *runtimeapi.PodSandboxConfig) (key string, err error)
	Drop(key string) error
	Resolve(key string)
	Add(key, id, handler string, config *runtimeapi.PodSandboxConfig) error
	Any(prefix string) bool
	Handler(sandboxID string) (string, bool)
	Forget(id string) error
}

// containers is the life of the VM containers; package lifecycle's Lifecycle.
type containers interface {
	Has(id string) bool
	Create(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig) (string, error)
	Start(ctx context.Context, id string) error
	Stop(ctx context.Context, id string, timeout time.Duration) error
	Remove(ctx context.Context, id string) error
	StopIn(ctx context.Context, sandboxID string) error
	RemoveIn(ctx context.Context, sandboxID string) error
	Update(ctx context.Context, id string, change *runtimeapi.LinuxContainerResources) error
	ReopenLog(id string) error
}

// reports says what is known of VM containers; package report's Reports.
type reports interface {
	List(f *runtimeapi.ContainerFilter) []*runtimeapi.Container
	Status(id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
	Statuses(sandboxID string) []*runtimeapi.ContainerStatus
	Unfinished(sandboxID string) *vminfo.Making
	Stats(id string) (*runtimeapi.ContainerStats, error)
	ListStats(f *runtimeapi.ContainerStatsFilter) []*runtimeapi.ContainerStats
	AddToPodStats(pod *runtimeapi.PodSandboxStats)
	AddToPodMetrics(pod *runtimeapi.PodSandboxMetrics)
}

// guests are the ways into running guests; package guest's Guests.
type guests interface {
	CheckExec(id string, r *runtimeapi.ExecRequest) error
	ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error)
	Running(id string) (wholeID string, err error)
	RunsIn(sandboxID string) bool
}

// eventSource has the events of VM containers; package event's Broker.
type eventSource interface {
	Subscribe(ctx context.Context) <-chan *runtimeapi.ContainerEventResponse
}

// streams creates URLs for streams into VMs, implemented by package stream.
type streams interface {
	Exec(r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error)
	Attach(r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error)
	PortForward(r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error)
}

// Options configure a Server.
type Options struct {
	// Backend is a connection to containerd's CRI. The caller closes it.
	Backend *grpc.ClientConn
	// Sandboxes, Containers, Reports, Guests and Events are the parts of package vm.
	Sandboxes  sandboxes
	Containers containers
	Reports    reports
	Guests     guests
	Events     eventSource
	// Streams creates URLs for streams into guests.
	Streams streams
	// Handler is the runtime handler of VMs' sandboxes. SandboxHandler is the one
	// that containerd gets instead.
	Handler, SandboxHandler string
	Logger                  *slog.Logger
	// Metrics counts each call.
	Metrics *metrics.Metrics
}

// Server serves CRI.
type Server struct {
	Options
	routes map[string]route
	// ending is closed to end the streams that last until their client leaves.
	ending chan struct{}
	end    func()
}

// route answers one call of a method.
type route func(*call) error

// New returns a Server. [Server.GRPC] serves it.
func New(o Options) *Server {
	s := &Server{Options: o, routes: routes(), ending: make(chan struct{})}
	s.end = sync.OnceFunc(func() { close(s.ending) })
	return s
}

// End ends the streams that last until their client leaves, so that a graceful stop
// of the gRPC server does not wait for them. Their clients get an error that asks
// them to call again.
func (s *Server) End() { s.end() }

// GRPC returns a gRPC server for s. It has no registered services: it answers each
// method by the table of routes, or forwards it to containerd.
func (s *Server) GRPC() *grpc.Server {
	return grpc.NewServer(
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.UnknownServiceHandler(s.handle),
		grpc.WaitForHandlers(true), // their resources are closed after they end
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
	)
}

// Dial returns a connection to a CRI socket, such as containerd's, with the options
// that New needs. It returns at once, and reconnects whenever the server has restarted.
func Dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("unix://"+socket, dialOptions()...)
}

func (s *Server) handle(_ any, stream grpc.ServerStream) error {
	method, ok := grpc.MethodFromServerStream(stream)
	if !ok {
		return status.Error(codes.Internal, "call without a method")
	}
	c := &call{Server: s, ctx: outgoing(stream.Context()), stream: stream, method: method, side: metrics.SideShim}
	r, ok := s.routes[method]
	if !ok {
		r = (*call).passStream
	}
	begun := time.Now()
	done := s.Metrics.Call(method)
	err := toStatus(r(c))
	done(c.side, status.Code(err))
	s.Logger.Debug("call", "method", method, "side", c.side, "duration", time.Since(begun), "error", err)
	return err
}

// outgoing returns a context for calls to containerd on behalf of an incoming call,
// with the same deadline, cancellation and metadata.
func outgoing(ctx context.Context) context.Context {
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		return metadata.NewOutgoingContext(ctx, md.Copy())
	}
	return ctx
}

// call is one call from a client.
type call struct {
	*Server
	ctx    context.Context
	stream grpc.ServerStream
	method string
	side   metrics.Side // what has answered so far
}

// receive reads the request of a call that has one.
func (c *call) receive() (frame, error) {
	var f frame
	err := c.stream.RecvMsg(&f)
	return f, err
}

// asked records that containerd contributes to the answer.
func (c *call) asked() {
	if c.side == metrics.SideShim {
		c.side = metrics.SideBoth
	}
}

func (c *call) reply(f frame) error { return c.stream.SendMsg(&f) }

// forward makes the same unary call to containerd and returns its reply. It passes
// header and trailer to the client.
func (c *call) forward(request frame) (frame, error) {
	c.asked()
	var reply frame
	var header, trailer metadata.MD
	err := c.Backend.Invoke(c.ctx, c.method, &request, &reply,
		grpc.ForceCodecV2(rawCodec{}), grpc.Header(&header), grpc.Trailer(&trailer))
	c.stream.SetTrailer(trailer)
	if err != nil {
		return nil, err // unwrapped: errors.Join would change its text
	}
	return reply, c.stream.SetHeader(header)
}

// pass answers with containerd's reply.
func (c *call) pass(request frame) error {
	c.side = metrics.SideContainerd // also if it fails
	reply, err := c.forward(request)
	if err != nil {
		return err
	}
	return c.handOn(reply)
}

// handOn answers with containerd's reply unchanged.
func (c *call) handOn(reply frame) error {
	c.side = metrics.SideContainerd
	return c.reply(reply)
}

// backendStream is a call to containerd in progress. cancel ends it, with the error
// that its client gets. The creator must call cancel.
type backendStream struct {
	grpc.ClientStream
	ctx    context.Context // ends only by cancel; the stream's own ends with the stream
	cancel context.CancelCauseFunc
}

// open makes the same call to containerd, as a stream.
func (c *call) open() (*backendStream, error) {
	ctx, cancel := context.WithCancelCause(c.ctx)
	both := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := c.Backend.NewStream(ctx, both, c.method, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		cancel(err)
		return nil, err
	}
	return &backendStream{stream, ctx, cancel}, nil
}

// ask opens a stream for the one request f.
func (c *call) ask(f frame) (*backendStream, error) {
	c.asked()
	backend, err := c.open()
	if err != nil {
		return nil, err
	}
	// If that failed because containerd answered early, its replies carry the error.
	if err := backend.SendMsg(&f); err != nil && !errors.Is(err, io.EOF) {
		backend.cancel(err)
		return nil, err
	}
	if err := backend.CloseSend(); err != nil {
		backend.cancel(err)
		return nil, err
	}
	return backend, nil
}

// passStream forwards a call of any kind, frame by frame.
func (c *call) passStream() error {
	c.side = metrics.SideContainerd
	backend, err := c.open()
	if err != nil {
		return err
	}
	defer backend.cancel(nil)
	go func() {
		for {
			f, err := c.receive()
			if errors.Is(err, io.EOF) {
				_ = backend.CloseSend() // never fails
				return
			}
			if err != nil {
				backend.cancel(err)
				return
			}
			if backend.SendMsg(&f) != nil {
				return // the replies carry the error
			}
		}
	}()
	return c.replies(backend, c.reply)
}

// replies passes each reply of a stream to send, and header and trailer to the client.
func (c *call) replies(backend *backendStream, send func(frame) error) error {
	// Without a header the call failed at once, and RecvMsg returns the error.
	if header, err := backend.Header(); err == nil && header != nil {
		// If the shim has sent a message before, the header is sent too.
		_ = c.stream.SendHeader(header)
	}
	for {
		var f frame
		if err := backend.RecvMsg(&f); err != nil {
			c.stream.SetTrailer(backend.Trailer())
			return c.endOf(backend, err)
		}
		if err := send(f); err != nil {
			return err
		}
	}
}

// endOf returns why there are no more replies: err, or the cause of the cancellation.
func (c *call) endOf(backend *backendStream, err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	if backend.ctx.Err() != nil && c.ctx.Err() == nil {
		return context.Cause(backend.ctx)
	}
	return err
}
