package metrics_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/nodevirt/nodevirt/shim/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve serves the metrics on a socket until the test ends, and returns what
// gets a page from it.
func serve(t *testing.T, m *metrics.Metrics) func(path string) (status int, body string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- metrics.Serve(ctx, l, m.Handler(slog.New(slog.DiscardHandler))) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", l.Addr().String())
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return func(path string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://shim"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		body, err := io.ReadAll(reply.Body)
		if err != nil {
			t.Fatal(err)
		}
		return reply.StatusCode, string(body)
	}
}

// TestCalls: calls are counted by method, side and code; a name that CRI doesn't
// have gets no separate label, and the endless call no time.
func TestCalls(t *testing.T) {
	m := metrics.New()
	get := serve(t, m)
	const cri = "/runtime.v1.RuntimeService/"
	m.Call(cri+"ContainerStatus")(metrics.SideShim, codes.OK)
	m.Call(cri+"ContainerStatus")(metrics.SideContainerd, codes.NotFound)
	m.Call("/runtime.v1.ImageService/ListImages")(metrics.SideContainerd, codes.OK)
	m.Call("/made.up/"+strings.Repeat("x", 100))(metrics.SideContainerd, codes.Unimplemented)
	m.Call("/made.up/too")(metrics.SideContainerd, codes.Unimplemented)
	m.Call(cri+"GetContainerEvents")(metrics.SideBoth, codes.Canceled)
	m.Call(cri + "StopContainer") // goes on
	status, body := get("/metrics")
	if status != http.StatusOK {
		t.Fatalf("status %d:\n%s", status, body)
	}
	for _, line := range []string{
		`nodevirt_cri_requests_total{code="OK",method="ContainerStatus",side="shim"} 1`,
		`nodevirt_cri_requests_total{code="NotFound",method="ContainerStatus",side="containerd"} 1`,
		`nodevirt_cri_requests_total{code="OK",method="ListImages",side="containerd"} 1`,
		`nodevirt_cri_requests_total{code="Unimplemented",method="other",side="containerd"} 2`,
		`nodevirt_cri_requests_total{code="Canceled",method="GetContainerEvents",side="both"} 1`,
		`nodevirt_cri_request_duration_seconds_count{method="ContainerStatus",side="shim"} 1`,
		`nodevirt_cri_requests_in_flight{method="StopContainer"} 1`,
		`nodevirt_cri_requests_in_flight{method="ContainerStatus"} 0`,
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	for _, text := range []string{"xxx", `duration_seconds_count{method="GetContainerEvents"`} {
		if strings.Contains(body, text) {
			t.Errorf("the page holds %s", text)
		}
	}
	if t.Failed() {
		t.Log(body)
	}
}

// TestPages: the process is looked at, and there is one page alone.
func TestPages(t *testing.T) {
	get := serve(t, metrics.New())
	_, body := get("/metrics")
	for _, name := range []string{"go_goroutines ", "process_open_fds ", "process_resident_memory_bytes "} {
		if !strings.Contains(body, "\n"+name) {
			t.Errorf("no %s", name)
		}
	}
	if status, _ := get("/debug/pprof/"); status != http.StatusNotFound {
		t.Errorf("another page answers %d", status)
	}
}

func BenchmarkCall(b *testing.B) {
	m := metrics.New()
	b.ReportAllocs()
	for b.Loop() {
		m.Call("/runtime.v1.RuntimeService/ContainerStatus")(metrics.SideContainerd, codes.OK)
	}
}
