// Package cri serves CRI to the kubelet and to crictl. It answers calls for VM
// containers itself and forwards all other calls to containerd byte for byte.
//
// It owns which calls are forwarded, rewritten or merged, and the gRPC codes of
// errors. It forwards every RPC without a route, including RPCs that CRI does not
// have yet. It leaves VM containers themselves to package vm.
package cri

import (
	"log/slog"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/metrics"
	"github.com/nodevirt/nodevirt/shim/nodeproblems"
	"github.com/nodevirt/nodevirt/tracing"
)

// maxMessage is the largest message in bytes, either way. containerd's is 16 MiB.
const maxMessage = 64 << 20

// sandboxes are the pod sandboxes of VMs; package sandbox's Sandboxes.
type sandboxes interface {
	sandboxIndex
	sandboxRecords
}

// containers is the life of the VM containers; package lifecycle's Lifecycle.
type containers interface {
	containerLife
	sandboxEnder
}

// reports returns what is known of VM containers; package report's Reports.
type reports interface {
	containerReports
	podReports
	sandboxReports
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
	// Checkpoints saves VMs.
	Checkpoints checkpoints
	// Streams creates URLs for streams into guests.
	Streams streams
	// Handler is the runtime handler of VMs' sandboxes. SandboxHandler is the one
	// that containerd gets instead.
	Handler, SandboxHandler string
	Logger                  *slog.Logger
	// Heard is called when the runtime's status is asked for; nil for none.
	Heard func()
	// Problems returns what is wrong with the node; nil for nothing.
	Problems func() []nodeproblems.Problem
	// Metrics counts each call.
	Metrics *metrics.Metrics
	// Tracing traces the calls that start VMs; nil for none.
	Tracing *tracing.Tracing
}

// Server serves CRI.
type Server struct {
	backend *grpc.ClientConn
	metrics *metrics.Metrics
	tracing *tracing.Tracing
	log     *slog.Logger
	routes  map[string]route // by the methods' full names
	// ending is closed to end the streams that last until their client leaves.
	ending chan struct{}
	end    func()
}

// route answers one call of a method.
type route func(*call) error

// New returns a Server. [Server.GRPC] serves it.
func New(o Options) *Server {
	s := &Server{backend: o.Backend, metrics: o.Metrics, tracing: o.Tracing, log: o.Logger, routes: map[string]route{}, ending: make(chan struct{})}
	find := finder{sandboxes: o.Sandboxes, pods: runtimeapi.NewRuntimeServiceClient(o.Backend)}
	pods := &sandboxCalls{
		find: find, sandboxes: o.Sandboxes, vms: o.Containers, reports: o.Reports,
		pods: runtimeapi.NewRuntimeServiceClient(Native(o.Backend)), handler: o.Handler, sandboxHandler: o.SandboxHandler, tracing: o.Tracing, log: o.Logger,
	}
	heard := o.Heard
	if heard == nil {
		heard = func() {}
	}
	problems := o.Problems
	if problems == nil {
		problems = func() []nodeproblems.Problem { return nil }
	}
	for _, calls := range []map[string]route{
		(&statusCalls{handler: o.Handler, sandboxHandler: o.SandboxHandler, heard: heard, problems: problems}).routes(),
		pods.routes(),
		(&podCheckpointCalls{find: find, pods: pods, containers: o.Containers, reports: o.Reports, checkpoints: o.Checkpoints}).routes(),
		(&containerCalls{find: find, containers: o.Containers, checkpoints: o.Checkpoints}).routes(),
		(&containerReportCalls{containers: o.Containers, reports: o.Reports}).routes(),
		(&podReportCalls{sandboxes: o.Sandboxes, reports: o.Reports}).routes(),
		(&streamCalls{find: find, containers: o.Containers, guests: o.Guests, streams: o.Streams}).routes(),
		(&eventCalls{
			events: o.Events, sandboxes: o.Sandboxes, reports: o.Reports, ending: s.ending,
			pods: runtimeapi.NewRuntimeServiceClient(o.Backend),
		}).routes(),
	} {
		maps.Copy(s.routes, calls)
	}
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

func (s *Server) handle(_ any, stream grpc.ServerStream) error {
	method, ok := grpc.MethodFromServerStream(stream)
	if !ok {
		return status.Error(codes.Internal, "call without a method")
	}
	c := &call{backend: s.backend, ctx: outgoing(stream.Context()), stream: stream, method: method, side: metrics.SideShim}
	r, ok := s.routes[method]
	if !ok {
		r = (*call).passStream
	}
	if s.tracing.On() && starts(method) {
		c.ctx = s.tracing.FromCall(c.ctx)
	}
	begun := time.Now()
	done := s.metrics.Call(method)
	err := toStatus(r(c))
	done(c.side, status.Code(err))
	s.log.Debug("call", "method", method, "side", c.side, "duration", time.Since(begun), "error", err)
	return err
}

// starts reports whether a method may be part of a VM's start. The others need no trace
// context: the metadata of a forwarded call has it.
func starts(method string) bool {
	switch method {
	case runtimeapi.RuntimeService_RunPodSandbox_FullMethodName, runtimeapi.RuntimeService_CreateContainer_FullMethodName,
		runtimeapi.RuntimeService_StartContainer_FullMethodName:
		return true
	}
	return false
}
