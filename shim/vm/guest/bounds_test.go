package guest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/stream"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// inNamespace moves a VM to a namespace.
func inNamespace(v *table.VM, namespace string) *table.VM {
	r := v.Record()
	r.Sandbox.Value.Metadata.Namespace = namespace
	v.Publish(r)
	return v
}

// endless is a client's input that has a number of bytes, and does not end.
type endless struct {
	left  int
	drunk chan struct{} // closed when all have been read
	once  sync.Once
	ctx   context.Context //nolint:containedctx // of the test
}

func (e *endless) Read(p []byte) (int, error) {
	if e.left == 0 {
		e.once.Do(func() { close(e.drunk) })
		<-e.ctx.Done()
		return 0, io.EOF
	}
	n := min(len(p), e.left)
	e.left -= n
	return n, nil
}

// TestInputHasABudget: clients that send input to many commands take no more than their namespace's part, and a
// command of another namespace gets its input.
func TestInputHasABudget(t *testing.T) {
	n := newNode(t)
	n.agents.Of(inNamespace(n.add("a", record.Running), "greedy")).Port.Report(agent.Present)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 64)
	refused := 0
	for range 12 {
		in := &endless{left: agent.MaxInput, drunk: make(chan struct{}), ctx: ctx}
		go func() { ended <- n.Exec(ctx, "a", []string{"cat"}, stream.Streams{In: in}) }()
		select {
		case <-in.drunk:
		case err := <-ended:
			if !errors.Is(err, vmerrors.ErrBusy) {
				t.Errorf("a command whose input has no place: %v", err)
			}
			refused++
		}
		if used := n.inputs.budget.Used(); used > NamespaceInputs {
			t.Fatalf("one namespace's input takes %d bytes", used)
		}
	}
	if refused == 0 {
		t.Error("all inputs were read")
	}
	n.serve(t, inNamespace(n.add("b", record.Running), "neighbour"), map[string]string{
		"guest-exec": `{"pid": 7}`, "guest-exec-status": `{"exited": true, "exitcode": 0, "out-data": "b3V0"}`,
	})
	var out bytes.Buffer
	if err := n.Exec(t.Context(), "b", []string{"cat"}, stream.Streams{In: bytes.NewReader(make([]byte, agent.MaxInput)), Out: &out}); err != nil || out.String() != "out" {
		t.Errorf("a neighbour's command: %q, %v", out.String(), err)
	}
	cancel()
	for range 12 - refused {
		<-ended
	}
	if used := n.inputs.budget.Used(); used != 0 {
		t.Errorf("after all commands %d bytes are taken", used)
	}
}

// unread is an input that nothing may read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the input was read")
	return 0, io.EOF
}

// TestInputAfterAdmission: the input of a command that can't run is not read.
func TestInputAfterAdmission(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	n.agents.Absent(v)
	err := n.Exec(t.Context(), "a", []string{"cat"}, stream.Streams{In: unread{t}})
	wantError(t, err, agent.ErrAbsent.Error())
	waits := v.Record()
	waits.Incoming = "0d2c5a5e"
	v.Publish(waits)
	n.agents.Of(v).Port.Report(agent.Present)
	err = n.Exec(t.Context(), "a", []string{"cat"}, stream.Streams{In: unread{t}})
	wantError(t, err, "waits for its guest")
}

// TestInputEnds: an input that does not end is given up.
func TestInputEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := readInput(ctx, &endless{left: 10, drunk: make(chan struct{}), ctx: ctx}, newInputs().budget.Grant("ns"))
		if !errors.Is(err, errSlowInput) {
			t.Errorf("%v", err)
		}
		cancel() // the connection's end
		time.Sleep(time.Second)
	})
}

// TestControlsWait: one control of a VM runs at a time, few wait, and no number of them keeps another VM's from running.
func TestControlsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		running, most := 0, 0
		release := make(chan struct{})
		lanes := &table.PerVM[*lane]{New: newLane}
		slow := queued(lanes, func(context.Context, *table.VM) ([]byte, error) {
			running++
			most = max(most, running)
			<-release
			running--
			return nil, nil
		})
		flooded, neighbour := &table.VM{}, &table.VM{}
		busy := 0
		ended := make(chan error, 100)
		for range 100 {
			go func() {
				_, err := slow(t.Context(), flooded)
				ended <- err
			}()
		}
		synctest.Wait()
		for len(ended) > 0 {
			if err := <-ended; !errors.Is(err, vmerrors.ErrBusy) {
				t.Errorf("%v", err)
			}
			busy++
		}
		if busy != 100-MaxControls || running != 1 {
			t.Errorf("%d of 100 were refused, %d run", busy, running)
		}
		if _, err := queued(lanes, func(context.Context, *table.VM) ([]byte, error) { return nil, nil })(t.Context(), neighbour); err != nil {
			t.Errorf("another VM's control: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		close(release)
		for range MaxControls {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if most != 1 {
			t.Errorf("%d ran at once", most)
		}
		if _, err := slow(ctx, flooded); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestStreamsOfAPod: clients that open streams to one pod, or to the pods of one namespace, leave streams to others.
func TestStreamsOfAPod(t *testing.T) {
	n := newNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	n.consoles.held = true
	attach := func(id string) error {
		begun, ended := make(chan struct{}), make(chan error, 1)
		n.consoles.begun = func() { close(begun) }
		all.Go(func() { ended <- n.Attach(ctx, id, stream.Streams{}) })
		select {
		case <-begun:
			return nil
		case err := <-ended:
			return err
		}
	}
	for pod := range bounds.NodeNamespaceStreams / bounds.PodStreams {
		id := "a" + strconv.Itoa(pod)
		inNamespace(n.add(id, record.Running), "greedy")
		for range bounds.PodStreams {
			if err := attach(id); err != nil {
				t.Fatal(err)
			}
		}
		for what, err := range map[string]error{
			"attach":       attach(id),
			"exec":         n.Exec(ctx, id, []string{"true"}, stream.Streams{}),
			"port-forward": n.Forward(ctx, "pod-"+id, 80, nil),
		} {
			if !errors.Is(err, vmerrors.ErrBusy) {
				t.Errorf("%s to a pod with %d streams: %v", what, bounds.PodStreams, err)
			}
		}
	}
	inNamespace(n.add("last", record.Running), "greedy")
	if err := attach("last"); !errors.Is(err, vmerrors.ErrBusy) {
		t.Errorf("a namespace has more than %d streams: %v", bounds.NodeNamespaceStreams, err)
	}
	inNamespace(n.add("b", record.Running), "neighbour")
	if err := attach("b"); err != nil {
		t.Errorf("a neighbour's stream: %v", err)
	}
	cancel()
	all.Wait()
	if used := n.streams.pods.Used() + n.streams.namespaces.Used(); used != 0 {
		t.Errorf("%d streams are counted after the last has ended", used)
	}
}
