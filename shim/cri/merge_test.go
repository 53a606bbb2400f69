package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// withList is a node with these VM containers.
type withList struct {
	noVMs
	list []*runtimeapi.Container
}

func (l withList) List(*runtimeapi.ContainerFilter) []*runtimeapi.Container { return l.list }

// TestConcatenation: frames one behind the other are what decoding both and putting the lists
// together gives, whatever is in them.
func TestConcatenation(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		a, b := randomList(r), randomList(r)
		// A field that this program doesn't know.
		a.ProtoReflect().SetUnknown([]byte{0xfa, 0x7f, 1, byte(r.Uint32())})
		fa, errA := encode(a)
		fb, errB := encode(b)
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		var got runtimeapi.ListContainersResponse
		if err := decode(append(fa, fb...), &got); err != nil {
			t.Fatal(err)
		}
		want := proto.CloneOf(a)
		want.Containers = append(want.Containers, b.Containers...)
		if diff := cmp.Diff(want, &got, protocmp.Transform()); diff != "" {
			t.Fatal(diff)
		}
	}
}

func randomList(r *rand.Rand) *runtimeapi.ListContainersResponse {
	text := func() string {
		b := make([]rune, r.IntN(5))
		for i := range b {
			b[i] = rune(r.IntN(0xd800))
		}
		return string(b)
	}
	texts := func() map[string]string {
		m := map[string]string{}
		for range r.IntN(4) {
			m[text()] = text()
		}
		return m
	}
	list := &runtimeapi.ListContainersResponse{}
	for range r.IntN(5) {
		c := &runtimeapi.Container{
			Id: text(), ImageRef: text(), State: runtimeapi.ContainerState(r.IntN(5)), CreatedAt: r.Int64() - 1<<62,
			Labels: texts(), Annotations: texts(),
		}
		if r.IntN(2) == 0 {
			c.Metadata = &runtimeapi.ContainerMetadata{Name: text(), Attempt: r.Uint32()}
		}
		list.Containers = append(list.Containers, c)
	}
	return list
}

// TestAppended: ours come last, also where the other side has none; its own replies stay as many.
func TestAppended(t *testing.T) {
	ours := &runtimeapi.Container{Id: "vm"}
	for n := range 4 {
		t.Run(fmt.Sprint(n, " replies"), func(t *testing.T) {
			w := newWire(t, withList{list: []*runtimeapi.Container{ours}}, func(_ any, s grpc.ServerStream) error {
				for i := range n {
					f, err := encode(&runtimeapi.StreamContainersResponse{Containers: []*runtimeapi.Container{{Id: fmt.Sprint(i)}}})
					if err := errors.Join(err, s.SendMsg(&f)); err != nil {
						return err
					}
				}
				return nil
			})
			o := do(t.Context(), t, w.client, joined, frame{})
			if len(o.status) > 0 || len(o.replies) != max(n, 1) {
				t.Fatalf("%d replies and status %q", len(o.replies), o.status)
			}
			var ids []string
			for _, f := range o.replies {
				var some runtimeapi.StreamContainersResponse
				if err := decode(f, &some); err != nil {
					t.Fatal(err)
				}
				for _, c := range some.Containers {
					ids = append(ids, c.Id)
				}
			}
			if want := append([]string{"0", "1", "2"}[:n:n], "vm"); !cmp.Equal(ids, want) {
				t.Errorf("containers %v, want %v", ids, want)
			}
		})
	}
}

// TestMalformed: a request that is no message is the client's fault.
func TestMalformed(t *testing.T) {
	w := newWire(t, noVMs{}, func(any, grpc.ServerStream) error {
		return errors.New("it was passed on")
	})
	o := do(t.Context(), t, w.client, merged, frame{0xff})
	if want := []byte{8, byte(codes.InvalidArgument)}; !bytes.HasPrefix(o.status, want) {
		t.Errorf("status %q", o.status)
	}
}

// withEvents is a node where something happens.
type withEvents struct {
	noVMs
	events chan *runtimeapi.ContainerEventResponse
	ended  chan context.Context
}

func (e withEvents) Handler(id string) (string, bool) { return "vm", id == "pod" }
func (e withEvents) Statuses(string) []*runtimeapi.ContainerStatus {
	return []*runtimeapi.ContainerStatus{{Id: "vm"}}
}
func (e withEvents) Subscribe(ctx context.Context) <-chan *runtimeapi.ContainerEventResponse {
	e.ended <- ctx
	return e.events
}

// eventsWire is a front whose other side sends what comes by theirs, and the open stream of a client.
func eventsWire(t *testing.T) (w wire, m withEvents, theirs chan frame, s grpc.ClientStream, cancel func()) {
	t.Helper()
	m = withEvents{events: make(chan *runtimeapi.ContainerEventResponse), ended: make(chan context.Context, 1)}
	theirs = make(chan frame)
	w = newWire(t, m, func(_ any, s grpc.ServerStream) error {
		if method, _ := grpc.MethodFromServerStream(s); method != events {
			return status.Error(codes.Unavailable, "busy")
		}
		for {
			select {
			case f := <-theirs:
				if err := s.SendMsg(&f); err != nil {
					return err
				}
			case <-s.Context().Done():
				return s.Context().Err()
			}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	s, err := w.client.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, events)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.SendMsg(&frame{}), s.CloseSend()); err != nil {
		t.Fatal(err)
	}
	return w, m, theirs, s, cancel
}

func TestEvents(t *testing.T) {
	_, m, theirs, s, cancel := eventsWire(t)
	receive := func() frame {
		t.Helper()
		var f frame
		if err := s.RecvMsg(&f); err != nil {
			t.Fatal(err)
		}
		return f
	}
	// Ours first, while containerd has nothing to say, and can't be asked for the pod either.
	m.events <- &runtimeapi.ContainerEventResponse{
		ContainerId: "vm", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, CreatedAt: 5,
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: "pod"},
	}
	expect(t, receive(), &runtimeapi.ContainerEventResponse{
		ContainerId: "vm", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, CreatedAt: 5,
		PodSandboxStatus:   &runtimeapi.PodSandboxStatus{Id: "pod", RuntimeHandler: "vm"},
		ContainersStatuses: []*runtimeapi.ContainerStatus{{Id: "vm"}},
	})
	// Containerd's event of a VM's pod names the VM too.
	f, err := encode(&runtimeapi.ContainerEventResponse{
		ContainerId: "sidecar", PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: "pod", RuntimeHandler: "runc"},
		ContainersStatuses: []*runtimeapi.ContainerStatus{{Id: "sidecar"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	theirs <- f
	expect(t, receive(), &runtimeapi.ContainerEventResponse{
		ContainerId: "sidecar", PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: "pod", RuntimeHandler: "vm"},
		ContainersStatuses: []*runtimeapi.ContainerStatus{{Id: "sidecar"}, {Id: "vm"}},
	})
	// Of another pod it stays as it is, also where encoding it again would change it.
	odd := frame{0x12, 1, 'b', 0x0a, 1, 'a', 0x0a, 1, 'c'}
	odd = append(frame{}, odd[3:]...)
	theirs <- odd
	if got := receive(); !bytes.Equal(got, odd) {
		t.Errorf("another pod's event: %q, want %q", got, odd)
	}
	// Without a client the stream has no reader.
	cancel()
	<-(<-m.ended).Done()
}

func expect(t *testing.T, f frame, want *runtimeapi.ContainerEventResponse) {
	t.Helper()
	var got runtimeapi.ContainerEventResponse
	if err := decode(f, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, &got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// TestEnd: a stream of events does not hold up the end of the shim.
func TestEnd(t *testing.T) {
	w, m, _, s, _ := eventsWire(t)
	ctx := <-m.ended // it has begun
	w.front.End()
	w.front.End()
	if err := s.RecvMsg(new(frame)); status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "the shim is ending" {
		t.Errorf("the stream ends with %v", err)
	}
	<-ctx.Done()
	w.server.GracefulStop()
}

// TestEventsLost: a stream whose other side goes away ends, and the client learns it.
func TestEventsLost(t *testing.T) {
	m := withEvents{events: nil, ended: make(chan context.Context, 1)}
	w := newWire(t, m, func(any, grpc.ServerStream) error { return nil })
	s, err := w.client.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, events)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.SendMsg(&frame{}), s.CloseSend()); err != nil {
		t.Fatal(err)
	}
	if err := s.RecvMsg(new(frame)); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
	<-(<-m.ended).Done()
}
