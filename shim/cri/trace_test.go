package cri

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/metrics"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/tracing"
)

// kubelets is the trace context of a kubelet that traces.
const kubelets = "00-cccccccccccccccccccccccccccccccc-dddddddddddddddd-01"

// oneSandbox takes one VM's sandbox, and starts any container but ordinary ones.
type oneSandbox struct {
	noVMs
	made record.Sandbox
	// started is the context of the last start.
	started context.Context
}

func (*oneSandbox) Check(*runtimeapi.PodSandboxConfig) error { return nil }
func (*oneSandbox) Intend(string, *runtimeapi.PodSandboxConfig) (string, error) {
	return "key", nil
}
func (*oneSandbox) Drop(string) error { return nil }
func (*oneSandbox) Making(context.Context, *runtimeapi.PodSandboxConfig) func() {
	return func() {}
}
func (*oneSandbox) Prepare(context.Context, string, *runtimeapi.PodSandboxConfig) error {
	return nil
}
func (o *oneSandbox) Add(_ string, r record.Sandbox) error {
	o.made = r
	return nil
}
func (*oneSandbox) Has(id string) bool { return id == "vm" }
func (o *oneSandbox) Start(ctx context.Context, _ string) error {
	o.started = ctx
	return nil
}

// traced is a front that traces.
type traced struct {
	client runtimeapi.RuntimeServiceClient
	parts  *oneSandbox
	spans  *tracetest.InMemoryExporter

	mu  sync.Mutex
	got metadata.MD // what containerd's last call came with
	err error       // containerd's answer
}

func newTraced(t *testing.T) *traced {
	t.Helper()
	n := &traced{parts: &oneSandbox{}, spans: tracetest.NewInMemoryExporter()}
	behind := grpc.NewServer(grpc.ForceServerCodecV2(rawCodec{}), grpc.WaitForHandlers(true),
		grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.got, _ = metadata.FromIncomingContext(s.Context())
			if n.err != nil {
				return n.err
			}
			reply, err := encode(&runtimeapi.RunPodSandboxResponse{PodSandboxId: "sandbox"})
			if err != nil {
				return err
			}
			return s.SendMsg(&reply)
		}))
	traces := tracing.ForTest(n.spans, 1)
	backend, err := Dial(listen(t, behind), traces.DialOptions()...)
	if err != nil {
		t.Fatal(err)
	}
	closed(t, backend)
	front := New(Options{
		Backend: backend, Sandboxes: n.parts, Containers: n.parts, Reports: n.parts, Guests: n.parts, Events: n.parts,
		Handler: "vm", Logger: slog.New(slog.DiscardHandler), Metrics: metrics.New(), Tracing: traces,
	})
	conn, err := Dial(listen(t, front.GRPC()))
	if err != nil {
		t.Fatal(err)
	}
	closed(t, conn)
	n.client = runtimeapi.NewRuntimeServiceClient(conn)
	return n
}

// arrived returns the trace contexts with which containerd's last call came.
func (n *traced) arrived() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.got.Get("traceparent")
}

func fromKubelet(t *testing.T) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "traceparent", kubelets)
}

// TestForwardedTraceContext: what is forwarded keeps the kubelet's trace context, and has no span.
func TestForwardedTraceContext(t *testing.T) {
	n := newTraced(t)
	for name, call := range map[string]func(context.Context) error{
		"RunPodSandbox": func(ctx context.Context) error {
			_, err := n.client.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{RuntimeHandler: "runc"})
			return err
		},
		"StartContainer": func(ctx context.Context) error {
			_, err := n.client.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: "ordinary"})
			return err
		},
		"Version": func(ctx context.Context) error {
			_, err := n.client.Version(ctx, &runtimeapi.VersionRequest{})
			return err
		},
	} {
		if err := call(fromKubelet(t)); err != nil {
			t.Fatal(err)
		}
		if got := n.arrived(); !slices.Equal(got, []string{kubelets}) {
			t.Errorf("%s arrives with %q", name, got)
		}
		if err := call(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := n.arrived(); len(got) > 0 {
			t.Errorf("%s without a trace arrives with %q", name, got)
		}
	}
	if all := n.spans.GetSpans(); len(all) > 0 {
		t.Errorf("spans %v", all.Snapshots())
	}
}

// TestTracedSandbox: a VM's sandbox is in the kubelet's trace or in its own, and so is containerd's call.
func TestTracedSandbox(t *testing.T) {
	for _, c := range []struct {
		ctx  context.Context
		want string
	}{{fromKubelet(t), kubelets[3:35]}, {t.Context(), ""}} {
		n := newTraced(t)
		config := &runtimeapi.PodSandboxConfig{
			Metadata:    &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "ns", Uid: "uid"},
			Annotations: map[string]string{tracing.Annotation: "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"},
		}
		if _, err := n.client.RunPodSandbox(c.ctx, &runtimeapi.RunPodSandboxRequest{RuntimeHandler: "vm", Config: config}); err != nil {
			t.Fatal(err)
		}
		spans := n.spans.GetSpans() // the call to containerd ends first
		if len(spans) != 2 || spans[1].Name != "RunPodSandbox" || spans[0].Parent.SpanID() != spans[1].SpanContext.SpanID() || len(spans[1].Links) != 1 {
			t.Fatalf("spans %+v", spans)
		}
		id := spans[1].SpanContext.TraceID().String()
		if c.want != "" && id != c.want || id == "0123456789abcdef0123456789abcdef" {
			t.Errorf("trace %s", id)
		}
		want := fmt.Sprintf("00-%s-%s-01", id, spans[0].SpanContext.SpanID())
		if got := n.arrived(); !slices.Equal(got, []string{want}) {
			t.Errorf("containerd's trace context %q, want %s", got, want)
		}
		r := n.parts.made
		if r.ID != "sandbox" || tracing.TraceID(r.Trace) != id || len(r.Timeline) != 1 || r.Timeline[0].Took <= 0 {
			t.Errorf("recorded %+v", r)
		}
	}
}

// TestTracedStart: a VM's start gets the kubelet's trace context.
func TestTracedStart(t *testing.T) {
	n := newTraced(t)
	if _, err := n.client.StartContainer(fromKubelet(t), &runtimeapi.StartContainerRequest{ContainerId: "vm"}); err != nil {
		t.Fatal(err)
	}
	if c := trace.SpanContextFromContext(n.parts.started); c.TraceID().String() != kubelets[3:35] {
		t.Errorf("context %v", c)
	}
}

// TestTracedFailure: containerd's error is not in the spans.
func TestTracedFailure(t *testing.T) {
	n := newTraced(t)
	n.err = status.Error(codes.Internal, "hunter2")
	_, err := n.client.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{RuntimeHandler: "vm", Config: &runtimeapi.PodSandboxConfig{}})
	if status.Convert(err).Message() != "hunter2" {
		t.Errorf("error %v", err)
	}
	spans := n.spans.GetSpans()
	if len(spans) != 2 {
		t.Errorf("spans %+v", spans)
	}
	for _, s := range spans {
		if text := fmt.Sprint(s); s.Status.Code.String() != "Error" || s.Status.Description != "" || strings.Contains(text, "hunter2") {
			t.Errorf("span %s", text)
		}
	}
}
