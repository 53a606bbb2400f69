package cri

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/metrics"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The methods of the tests: one of each form, and one of a service that there isn't.
const (
	unrouted = runtimeapi.RuntimeService_Version_FullMethodName
	routed   = runtimeapi.RuntimeService_StopPodSandbox_FullMethodName
	merged   = runtimeapi.RuntimeService_ListContainers_FullMethodName
	streamed = runtimeapi.ImageService_StreamImages_FullMethodName
	joined   = runtimeapi.RuntimeService_StreamContainers_FullMethodName
	events   = runtimeapi.RuntimeService_GetContainerEvents_FullMethodName
	unknown  = "/runtime.v9.FutureService/Chat"
)

// parts are all that a front answers from.
type parts interface {
	sandboxes
	containers
	reports
	guests
	eventSource
}

// newFront makes a front for the parts.
func newFront(backend *grpc.ClientConn, p parts) *Server {
	return New(Options{
		Backend: backend, Sandboxes: p, Containers: p, Reports: p, Guests: p, Events: p,
		Handler: "vm", Logger: slog.New(slog.DiscardHandler), Metrics: metrics.New(),
	})
}

// noVMs is a node without VMs. Tests of the wire replace what they need.
type noVMs struct{ parts }

func (noVMs) Any(string) bool               { return false }
func (noVMs) Has(string) bool               { return false }
func (noVMs) Handler(string) (string, bool) { return "", false }
func (noVMs) List(*runtimeapi.ContainerFilter) []*runtimeapi.Container {
	return nil
}
func (noVMs) Statuses(string) []*runtimeapi.ContainerStatus { return nil }
func (noVMs) Subscribe(context.Context) <-chan *runtimeapi.ContainerEventResponse {
	return nil
}

// wire is a front between a client and the other side, which is no containerd
// but answers as each test wants.
type wire struct {
	client, direct *grpc.ClientConn
	front          *Server
	server         *grpc.Server
}

func newWire(t *testing.T, m parts, backend grpc.StreamHandler) wire {
	t.Helper()
	behind := grpc.NewServer(
		grpc.ForceServerCodecV2(rawCodec{}), grpc.UnknownServiceHandler(backend),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage), grpc.WaitForHandlers(true))
	socket := listen(t, behind)
	conn, err := Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	closed(t, conn)
	front := newFront(conn, m)
	server := front.GRPC()
	return wire{client: dialRaw(t, listen(t, server)), direct: dialRaw(t, socket), front: front, server: server}
}

func listen(t *testing.T, s *grpc.Server) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cri-") // t.TempDir's paths are too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := errors.Join(<-served, os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	return socket
}

func dialRaw(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(maxMessage)))
	if err != nil {
		t.Fatal(err)
	}
	closed(t, c)
	return c
}

func closed(t *testing.T, c io.Closer) {
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// outcome is all that a client sees of a call.
type outcome struct {
	header, trailer metadata.MD
	replies         []frame
	status          []byte
}

// do makes a call of any form.
func do(ctx context.Context, t *testing.T, c *grpc.ClientConn, method string, requests ...frame) outcome {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		if err := s.SendMsg(&r); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	var o outcome
	for {
		var f frame
		err := s.RecvMsg(&f)
		if err == nil {
			o.replies = append(o.replies, f)
			continue
		}
		if !errors.Is(err, io.EOF) {
			o.status = deterministic(t, status.Convert(err).Proto())
		}
		if o.header, err = s.Header(); err != nil {
			t.Fatal(err)
		}
		o.trailer = s.Trailer()
		return o
	}
}

func deterministic(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func random(n int) frame {
	b := make(frame, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// request is a message of any type: with one field, which no type has.
func request() frame { return frame{0xfa, 0x7f, 3, 'n', 'e', 'w'} } // field 2047

// TestPassed: what there is no route for, and what is routed and no VM's, arrives as it was sent,
// both ways, whatever is in it.
func TestPassed(t *testing.T) {
	var got []frame
	var incoming metadata.MD
	replies := []frame{random(100), {}, random(5000)}
	w := newWire(t, noVMs{}, func(_ any, s grpc.ServerStream) error {
		got = nil
		incoming, _ = metadata.FromIncomingContext(s.Context())
		method, _ := grpc.MethodFromServerStream(s)
		if err := s.SendHeader(metadata.Pairs("head", "h1", "head", "h2", "head-bin", "\x00\xff")); err != nil {
			return err
		}
		s.SetTrailer(metadata.Pairs("tail", "t", "tail-bin", "\x01"))
		for {
			var f frame
			if err := s.RecvMsg(&f); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return err
			}
			got = append(got, f)
		}
		for i, r := range replies {
			if err := s.SendMsg(&r); err != nil {
				return err
			}
			if i == 0 && (method == unrouted || method == routed || method == merged) {
				break
			}
		}
		return nil
	})
	for method, requests := range map[string][]frame{
		unrouted: {random(1000)},
		routed:   {request()},
		merged:   {{}},
		streamed: {random(10)},
		joined:   {{}},
		unknown:  {random(1), {}, random(70000)},
	} {
		t.Run(filepath.Base(method), func(t *testing.T) {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "key", "one", "key", "two", "key-bin", "\x00\x80")
			want := do(ctx, t, w.direct, method, requests...)
			through := do(ctx, t, w.client, method, requests...)
			equal(t, "requests", requests, got)
			for _, key := range []string{"key", "key-bin"} {
				if a, b := metadata.ValueFromIncomingContext(metadata.NewIncomingContext(ctx, incoming), key), incoming[key]; len(b) == 0 || len(a) != len(b) {
					t.Errorf("metadata %s: %q", key, b)
				}
			}
			same(t, want, through)
		})
	}
}

func equal(t *testing.T, what string, want, got []frame) {
	t.Helper()
	if len(want) != len(got) {
		t.Errorf("%s: %d, want %d", what, len(got), len(want))
		return
	}
	for i := range want {
		if !bytes.Equal(want[i], got[i]) {
			t.Errorf("%s: number %d differs: %d bytes, want %d", what, i, len(got[i]), len(want[i]))
		}
	}
}

// same reports whether a client gets the same from the front as from what is behind it.
func same(t *testing.T, want, got outcome) {
	t.Helper()
	equal(t, "replies", want.replies, got.replies)
	if !bytes.Equal(want.status, got.status) {
		t.Errorf("status: %q\nwant %q", got.status, want.status)
	}
	for what, md := range map[string][2]metadata.MD{"header": {want.header, got.header}, "trailer": {want.trailer, got.trailer}} {
		for key, values := range md[0] {
			if len(values) != len(md[1][key]) || !bytes.Equal(join(values), join(md[1][key])) {
				t.Errorf("%s %s: %q, want %q", what, key, md[1][key], values)
			}
		}
	}
}

func join(all []string) (b []byte) {
	for _, s := range all {
		b = append(append(b, s...), 0)
	}
	return b
}

// TestErrorsPassed: an error is the other side's own, to the last detail.
func TestErrorsPassed(t *testing.T) {
	s, err := status.New(codes.NotFound, `container "x": not found`).WithDetails(durationpb.New(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	w := newWire(t, noVMs{}, func(_ any, stream grpc.ServerStream) error {
		stream.SetTrailer(metadata.Pairs("tail", "of an error"))
		return s.Err()
	})
	for _, method := range []string{unrouted, routed, merged, streamed, joined, events, unknown} {
		t.Run(filepath.Base(method), func(t *testing.T) {
			want := do(t.Context(), t, w.direct, method, request())
			if len(want.status) == 0 || len(want.trailer["tail"]) == 0 {
				t.Fatalf("the other side says %+v", want)
			}
			same(t, want, do(t.Context(), t, w.client, method, request()))
		})
	}
}

// TestErrorAfterReplies: what came before an error reaches the client.
func TestErrorAfterReplies(t *testing.T) {
	reply, err := encode(&runtimeapi.StreamContainersResponse{Containers: []*runtimeapi.Container{{Id: "c"}}})
	if err != nil {
		t.Fatal(err)
	}
	w := newWire(t, noVMs{}, func(_ any, s grpc.ServerStream) error {
		return errors.Join(s.SendMsg(&reply), s.SendMsg(&reply), status.Error(codes.DataLoss, "half"))
	})
	want := do(t.Context(), t, w.direct, streamed, request())
	same(t, want, do(t.Context(), t, w.client, streamed, request()))
}

// TestEnds: a client's deadline, and its going away, are known behind the front.
func TestEnds(t *testing.T) {
	const limit = time.Hour
	deadlines, ended := make(chan time.Time, 1), make(chan error, 1)
	w := newWire(t, noVMs{}, func(_ any, s grpc.ServerStream) error {
		d, _ := s.Context().Deadline()
		deadlines <- d
		<-s.Context().Done()
		ended <- s.Context().Err()
		return s.Context().Err()
	})
	for _, method := range []string{unrouted, routed, merged, streamed, joined, events, unknown} {
		t.Run(filepath.Base(method), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			s, err := w.client.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
			if err != nil {
				t.Fatal(err)
			}
			f := request()
			if err := errors.Join(s.SendMsg(&f), s.CloseSend()); err != nil {
				t.Fatal(err)
			}
			want, _ := ctx.Deadline()
			if d := <-deadlines; d.IsZero() || d.After(want.Add(limit/2)) || d.Before(want.Add(-limit/2)) {
				t.Errorf("deadline %v, want %v", d, want)
			}
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
		})
	}
}

// TestLarge: lists of a full node, and exec's output, are large.
func TestLarge(t *testing.T) {
	w := newWire(t, noVMs{}, func(_ any, s grpc.ServerStream) error {
		var f frame
		if err := s.RecvMsg(&f); err != nil {
			return err
		}
		return s.SendMsg(&f)
	})
	large := make(frame, 30<<20)
	large[0], large[len(large)-1] = 0x0a, 7
	for _, method := range []string{unrouted, unknown} {
		o := do(t.Context(), t, w.client, method, large)
		equal(t, method, []frame{large}, o.replies)
	}
	// More than the front takes is the client's error, which the front reports.
	for _, method := range []string{unrouted, routed} {
		o := do(t.Context(), t, w.client, method, make(frame, maxMessage+1))
		if want := []byte{8, byte(codes.ResourceExhausted)}; !bytes.HasPrefix(o.status, want) {
			t.Errorf("%s with a message over the limit: %q", method, o.status)
		}
	}
}

// TestAway: a client learns at once that the server is away.
func TestAway(t *testing.T) {
	conn, err := Dial(filepath.Join(t.TempDir(), "nobody.sock"))
	if err != nil {
		t.Fatal(err)
	}
	closed(t, conn)
	client := dialRaw(t, listen(t, newFront(conn, noVMs{}).GRPC()))
	for _, method := range []string{unrouted, routed, merged, streamed, joined, events, unknown} {
		o := do(t.Context(), t, client, method, request())
		if want := []byte{8, byte(codes.Unavailable)}; !bytes.HasPrefix(o.status, want) {
			t.Errorf("%s: %q", method, o.status)
		}
	}
}
