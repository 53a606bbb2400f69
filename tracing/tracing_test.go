package tracing_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/nodevirt/nodevirt/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const strangers = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"

// receiver is a collector.
type receiver struct {
	collector.UnimplementedTraceServiceServer

	mu    sync.Mutex
	spans []*otlp.Span
	host  string
}

func (r *receiver) Export(_ context.Context, in *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range in.GetResourceSpans() {
		for _, a := range of.GetResource().GetAttributes() {
			if a.GetKey() == "host.name" {
				r.host = a.GetValue().GetStringValue()
			}
		}
		for _, s := range of.GetScopeSpans() {
			r.spans = append(r.spans, s.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func (r *receiver) find(name string) *otlp.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.spans {
		if s.GetName() == name {
			return s
		}
	}
	return nil
}

func options(endpoint string) tracing.Options {
	return tracing.Options{Endpoint: endpoint, Ratio: 1, Insecure: true, Service: "nodevirt-shim", Version: "v1", Host: "node"}
}

// TestReceiver exports to a server of the collector's protocol.
func TestReceiver(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r, server := &receiver{}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	tr, err := tracing.New(t.Context(), options(l.Addr().String()), slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := tr.Start(t.Context(), tracing.Call{Name: "StartContainer", Link: strangers, Attributes: tracing.Pod("ns", "web", "uid")})
	_, endPhase := tracing.Phase(ctx, "phase", "cgroup")
	endPhase(errdefs.ErrInvalidArgument.WithMessage("password: hunter2"))
	end(nil)
	traceparent := tracing.Format(ctx)
	tr.Past(t.Context(), "phase agent", traceparent, time.Unix(10, 0), time.Unix(12, 0))
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	call, phase, agent := r.find("StartContainer"), r.find("phase cgroup"), r.find("phase agent")
	if call == nil || phase == nil || agent == nil || r.host != "node" {
		t.Fatalf("spans %v of host %q", r.spans, r.host)
	}
	if got := slices.Collect(attributes(call)); !slices.Equal(got, []string{"k8s.namespace.name=ns", "k8s.pod.name=web", "k8s.pod.uid=uid"}) {
		t.Errorf("attributes %q", got)
	}
	if len(call.GetLinks()) != 1 || string(call.GetTraceId()) == string(call.GetLinks()[0].GetTraceId()) {
		t.Errorf("links %v of trace %x", call.GetLinks(), call.GetTraceId())
	}
	if string(phase.GetParentSpanId()) != string(call.GetSpanId()) || string(agent.GetParentSpanId()) != string(call.GetSpanId()) {
		t.Error("the phases are not children of the call")
	}
	if agent.GetEndTimeUnixNano()-agent.GetStartTimeUnixNano() != 2e9 {
		t.Errorf("the agent's span %v", agent)
	}
	if got := slices.Collect(attributes(phase)); phase.GetStatus().GetCode() != otlp.Status_STATUS_CODE_ERROR ||
		!slices.Equal(got, []string{"error.type=InvalidArgument"}) || strings.Contains(phase.String(), "hunter2") {
		t.Errorf("failed phase %v", phase)
	}
}

func attributes(s *otlp.Span) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, a := range s.GetAttributes() {
			if !yield(a.GetKey() + "=" + a.GetValue().GetStringValue()) {
				return
			}
		}
	}
}

// TestNoCollector: spans beyond the queue are dropped, and nothing waits.
func TestNoCollector(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // it accepts, and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tr, err := tracing.New(t.Context(), options(l.Addr().String()), slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	for range 50_000 {
		_, end := tr.Start(t.Context(), tracing.Call{Name: "StartContainer"})
		end(nil)
	}
	if took := time.Since(begun); took > 10*time.Second { // an export times out only after ten
		t.Errorf("50,000 spans took %s", took)
	}
	if err := tr.Close(t.Context()); err == nil {
		t.Error("the last spans were exported without an answer")
	}
}

func TestOff(t *testing.T) {
	tr, err := tracing.New(t.Context(), tracing.Options{}, slog.New(slog.DiscardHandler))
	if tr != nil || err != nil || tr.On() || tr.DialOptions() != nil {
		t.Fatalf("without an endpoint there is %v, %v", tr, err)
	}
	ctx, end := tr.Start(t.Context(), tracing.Call{Name: "a", Link: strangers})
	end(errors.New("failed"))
	if ctx != t.Context() || tracing.Format(ctx) != "" || tr.FromCall(ctx) != ctx || tr.Close(ctx) != nil {
		t.Error("tracing that is off changes the context")
	}
	tr.Past(ctx, "a", strangers, time.Now(), time.Now())
	if n := testing.AllocsPerRun(100, func() {
		_, end := tracing.Phase(ctx, "phase", "cgroup")
		end(nil)
	}); n > 0 {
		t.Errorf("a phase allocates %v times", n)
	}
}

func TestProblems(t *testing.T) {
	for _, c := range []struct {
		o    tracing.Options
		want string // the field
	}{
		{tracing.Options{}, ""},
		{tracing.Options{Endpoint: "collector:4317", Ratio: 0.5, CA: "/ca.pem"}, ""},
		{tracing.Options{Endpoint: "[fd00::1]:4317"}, ""},
		{tracing.Options{Endpoint: "collector"}, "endpoint"},
		{tracing.Options{Endpoint: ":4317"}, "endpoint"},
		{tracing.Options{Endpoint: "collector:0"}, "endpoint"},
		{tracing.Options{Endpoint: "collector:otlp"}, "endpoint"},
		{tracing.Options{Endpoint: "http://collector:4317"}, "endpoint"},
		{tracing.Options{Ratio: -0.1}, "ratio"},
		{tracing.Options{Ratio: math.NaN()}, "ratio"},
		{tracing.Options{CA: "ca.pem"}, "ca"},
		{tracing.Options{CA: "/ca.pem", Insecure: true}, "ca"},
	} {
		got := ""
		for _, p := range c.o.Problems() {
			got += p.Field
		}
		if got != c.want {
			t.Errorf("%+v: problem with %q, want %q", c.o, got, c.want)
		}
	}
	o := options("127.0.0.1:1")
	o.Insecure, o.CA = false, filepath.Join(t.TempDir(), "none.pem")
	if _, err := tracing.New(t.Context(), o, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a missing CA is no error")
	}
}

func TestParse(t *testing.T) {
	if c, ok := tracing.Parse(strangers); !ok || !c.IsSampled() || !c.IsRemote() || tracing.TraceID(strangers) != strangers[3:35] {
		t.Errorf("%s: %v, %t", strangers, c, ok)
	}
	if id := tracing.TraceID(strings.TrimSuffix(strangers, "1") + "0"); id != "" {
		t.Errorf("trace %s, which is not exported", id)
	}
	for _, text := range []string{
		"", "00", strings.Repeat("0", 55), strings.Repeat("a", 1<<20), strangers + "-more", "01" + strangers[2:],
		strings.ToUpper(strangers), strings.Replace(strangers, "-01", "-zz", 1),
		"00-00000000000000000000000000000000-0123456789abcdef-01", "00-0123456789abcdef0123456789abcdef-0000000000000000-01",
	} {
		if c, ok := tracing.Parse(text); ok || tracing.TraceID(text) != "" {
			t.Errorf("%.80q: %v", text, c)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(strangers)
	f.Fuzz(func(t *testing.T, text string) {
		if c, ok := tracing.Parse(text); ok && (!c.IsValid() || len(text) != len(strangers)) {
			t.Errorf("%q: %v", text, c)
		}
	})
}

// TestParents: the caller's trace is continued, or else that of an earlier call; an annotation's never.
func TestParents(t *testing.T) {
	to := tracetest.NewInMemoryExporter()
	tr := tracing.ForTest(to, 1)
	earlier := "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-01"
	called := metadata.NewIncomingContext(t.Context(), metadata.Pairs("traceparent", "00-cccccccccccccccccccccccccccccccc-dddddddddddddddd-01"))
	unsampled := metadata.NewIncomingContext(t.Context(), metadata.Pairs("traceparent", "00-cccccccccccccccccccccccccccccccc-dddddddddddddddd-00"))
	for _, c := range []struct {
		name         string
		ctx          context.Context
		parent, link string
		want         string // the beginning of the trace's ID; empty for a new one
		links        int
	}{
		{"root", t.Context(), "", "", "", 0},
		{"linked", t.Context(), "", strangers, "", 1},
		{"bad link", t.Context(), "", "00-zz", "", 0},
		{"later", t.Context(), earlier, strangers, "aaaa", 1},
		{"called", called, "", strangers, "cccc", 1},
		{"called later", called, earlier, "", "cccc", 1},
		{"not sampled", unsampled, "", "", "none", 0},
	} {
		to.Reset()
		_, end := tr.Start(tr.FromCall(c.ctx), tracing.Call{Name: c.name, Parent: c.parent, Link: c.link})
		end(nil)
		spans := to.GetSpans()
		if c.want == "none" {
			if len(spans) > 0 {
				t.Errorf("%s: exported %v", c.name, spans)
			}
			continue
		}
		if len(spans) != 1 || len(spans[0].Links) != c.links || spans[0].SpanContext.TraceID().String() == strangers[3:35] {
			t.Errorf("%s: %v", c.name, spans)
			continue
		}
		if got := spans[0].SpanContext.TraceID().String(); !strings.HasPrefix(got, c.want) || (c.want == "") == spans[0].Parent.IsValid() {
			t.Errorf("%s: trace %s of parent %v", c.name, got, spans[0].Parent)
		}
	}
}

func TestRequest(t *testing.T) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://webhook", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Traceparent", strangers)
	if c := trace.SpanContextFromContext(tracing.ForTest(tracetest.NewInMemoryExporter(), 1).FromRequest(r)); c.TraceID().String() != strangers[3:35] {
		t.Errorf("context %v", c)
	}
	if c := trace.SpanContextFromContext((*tracing.Tracing)(nil).FromRequest(r)); c.IsValid() {
		t.Errorf("context %v although tracing is off", c)
	}
}

// TestLinkedSampling: of a linked pair both are exported or neither, whatever the link's author says.
func TestLinkedSampling(t *testing.T) {
	to := tracetest.NewInMemoryExporter()
	tr := tracing.ForTest(to, 0.5)
	exported := 0
	for range 200 {
		to.Reset()
		ctx, end := tr.Start(t.Context(), tracing.Call{Name: "admission"})
		end(nil)
		link := tracing.Format(ctx)
		_, end = tr.Start(t.Context(), tracing.Call{Name: "start", Link: link[:len(link)-1] + "1"}) // its author wants it exported
		end(nil)
		if n := len(to.GetSpans()); n == 1 {
			t.Fatalf("one of two was exported: %v", to.GetSpans())
		} else {
			exported += n / 2
		}
	}
	if exported == 0 || exported == 200 {
		t.Errorf("%d of 200 were exported with the ratio 0.5", exported)
	}
}

// TestErrorsHaveNoText: what a library writes into a span's status does not leave the process either.
func TestErrorsHaveNoText(t *testing.T) {
	to := tracetest.NewInMemoryExporter()
	ctx, end := tracing.ForTest(to, 1).Start(t.Context(), tracing.Call{Name: "a"})
	span := trace.SpanFromContext(ctx)
	span.SetStatus(codes.Error, "hunter2")
	span.RecordError(errors.New("hunter2"))
	end(nil)
	if s := to.GetSpans()[0]; s.Status.Code != codes.Error || s.Status.Description != "" || len(s.Events) > 0 {
		t.Errorf("span %+v", s)
	}
}

// TestRecovery: lost spans are logged once, and that exports succeed again.
func TestRecovery(t *testing.T) {
	// The exporter is a fake of ours; TestReceiver has the real one.
	var log strings.Builder
	to := &failing{}
	tr := tracing.ForTestLog(to, slog.New(slog.NewTextHandler(&log, nil)))
	for _, to.err = range []error{errors.New("away"), errors.New("away"), nil, nil} {
		_, end := tr.Start(t.Context(), tracing.Call{Name: "a"})
		end(nil)
	}
	if strings.Count(log.String(), "exporting traces failed") != 1 || strings.Count(log.String(), "lost=2") != 1 {
		t.Errorf("log:\n%s", log.String())
	}
}
