//go:build faults

package faults

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// criClient makes calls on its pod, and on what does not exist.
type criClient struct {
	*pod
	model
	r       *rand.Rand // all that it does depends on this alone
	name    string
	pods    int
	gone    []string // ids of what was removed
	history []string

	calls, lives, twice, givenUp int
	codes                        map[codes.Code]int
}

func newCRIClient(seed uint64, n int) (*criClient, error) {
	c := &criClient{
		r: rand.New(rand.NewPCG(seed, uint64(n))), name: fmt.Sprintf("cri-%d-%d", seed, n), codes: map[codes.Code]int{},
	}
	return c, c.nextPod()
}

// nextPod is a pod that is not made yet.
func (c *criClient) nextPod() (err error) {
	c.pods++
	c.model = model{sandbox: absent}
	if c.pod, err = newPod(fmt.Sprintf("%s-%d", c.name, c.pods), suite.halt, 64<<20); err == nil && c.r.IntN(4) == 0 {
		c.overISCSI()
	}
	return err
}

// patience bounds each call.
const patience = time.Minute

// step makes one call, or two at once, and compares.
func (c *criClient) step(ctx context.Context) error {
	op := c.choose()
	t := c.aim(op)
	want := c.expect(op, t)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	how := c.r.IntN(100)
	switch {
	case how < 8:
		return c.makeTwice(ctx, op, t, want)
	case how < 16 && op.settle != nil && want == codes.OK && (t.known || op.about == ofNode):
		return c.giveUp(ctx, op, t)
	}
	made, err := op.do(ctx, c, t)
	c.note(op.name, t, err)
	if err := c.judge(op, err, want); err != nil {
		return err
	}
	if err != nil || op.moves == nil || op.about != ofNode && !t.known {
		return nil // the model has this answer, an error too
	}
	c.change(op, t, made)
	return c.compare(ctx)
}

// expect is the code that the model allows.
func (c *criClient) expect(op operation, t target) codes.Code {
	if op.about != ofNode && !t.known {
		return op.absent
	}
	return op.answers(&c.model, t)
}

func (c *criClient) judge(op operation, err error, want codes.Code) error {
	if _, is := errors.AsType[wrong](err); !is && status.Code(err) == want {
		return nil
	}
	return fmt.Errorf("%s: %w; want %s, with the pod %s and its VM %s", op.name, orOK(err), want, c.sandbox, c.now())
}

func orOK(err error) error {
	if err == nil {
		return errors.New("OK")
	}
	return err
}

// change changes the model by a call that has succeeded.
func (c *criClient) change(op operation, t target, made string) {
	op.moves(c, t, made)
	if op.about == ofVM && !slices.Contains(c.containers, t.container) {
		c.gone = append(c.gone, t.container.id)
	}
}

// makeTwice makes a call twice at once. One of both is the first.
func (c *criClient) makeTwice(ctx context.Context, op operation, t target, first codes.Code) error {
	var made [2]string
	var errs [2]error
	var both sync.WaitGroup
	for i := range 2 {
		both.Go(func() { made[i], errs[i] = op.do(ctx, c, t) })
	}
	both.Wait()
	c.twice++
	c.note(op.name+" twice", t, errs[0], errs[1])
	if raced(op, errs[:]) {
		if op.settle == nil {
			return c.compare(ctx)
		}
		return errors.Join(op.settle(ctx, c, t), c.compare(ctx))
	}
	if first == codes.OK && op.moves != nil && (op.about == ofNode || t.known) {
		if errs[0] != nil {
			made[0], made[1], errs[0], errs[1] = made[1], made[0], errs[1], errs[0]
		}
	}
	if err := c.judge(op, errs[0], first); err != nil {
		return fmt.Errorf("first of two at once: %w", err)
	}
	second := op
	if op.twice != nil {
		second.answers = op.twice
	}
	if errs[0] == nil && op.moves != nil && (op.about == ofNode || t.known) {
		c.change(op, t, made[0])
		t.known = op.about == ofVM && slices.Contains(c.containers, t.container) || op.about == ofPod && c.sandbox != absent
	}
	if err := c.judge(op, errs[1], c.expect(second, t)); err != nil {
		return fmt.Errorf("second of two at once: %w", err)
	}
	return c.compare(ctx)
}

// raced reports whether two calls at once got in each other's way.
func raced(op operation, errs []error) bool {
	return op.races != codes.OK && slices.ContainsFunc(errs, func(err error) bool { return status.Code(err) == op.races })
}

// giveUp loses interest in a call, and then does what a kubelet would.
func (c *criClient) giveUp(ctx context.Context, op operation, t target) error {
	short, cancel := context.WithCancel(ctx)
	after := time.Duration(c.r.IntN(400)) * time.Millisecond
	if c.r.IntN(2) == 0 {
		short, cancel = context.WithTimeout(ctx, after)
	} else {
		time.AfterFunc(after, cancel)
	}
	made, err := op.do(short, c, t)
	cancel()
	c.givenUp++
	c.note(fmt.Sprintf("%s given up after %s", op.name, after), t, err)
	switch status.Code(err) {
	case codes.OK:
		c.change(op, t, made)
	case codes.Canceled, codes.DeadlineExceeded:
	default:
		return fmt.Errorf("%s given up after %s: %w", op.name, after, err)
	}
	if err := op.settle(ctx, c, t); err != nil {
		return fmt.Errorf("after %s was given up: %w", op.name, err)
	}
	return c.compare(ctx)
}

// compare returns an error unless lists have the pod and its containers as the model has.
func (c *criClient) compare(ctx context.Context) error {
	own := map[string]string{"io.kubernetes.pod.uid": c.config.Metadata.Uid}
	list, err := suite.cri.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: own}})
	if err != nil {
		return err
	}
	var got, want []string
	for _, l := range list.Containers {
		got = append(got, l.Id+" "+l.State.String())
	}
	for _, m := range c.containers {
		want = append(want, m.id+" "+m.state.String())
	}
	pods, err := suite.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: own}})
	if err != nil {
		return err
	}
	for _, p := range pods.Items {
		got = append(got, fmt.Sprintf("%s ready: %t", p.Id, p.State == runtimeapi.PodSandboxState_SANDBOX_READY))
	}
	if c.sandbox != absent {
		want = append(want, fmt.Sprintf("%s ready: %t", c.id, c.sandbox == ready))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("the node has\n%s\nthe model has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return nil
}

// aim chooses whom a call is about: mostly the own pod or one of its containers.
func (c *criClient) aim(op operation) target {
	var t target
	switch op.about {
	case ofNode:
		return t
	case ofPod:
		t.id, t.known = c.id, c.sandbox != absent
	case ofVM:
		if c.last() != nil {
			t.container = c.last()
			if c.r.IntN(4) == 0 {
				t.container = c.containers[c.r.IntN(len(c.containers))]
			}
			t.id, t.known = t.container.id, true
		}
	}
	switch which := c.r.IntN(20); {
	case !t.known && len(c.gone) > 0 && which < 10:
		return target{id: c.gone[c.r.IntN(len(c.gone))]}
	case !t.known, which == 0:
		return target{id: c.randomID()}
	case which < 4:
		t.id = t.id[:13] // as crictl shows it
	}
	return t
}

func (c *criClient) randomID() string {
	var id [32]byte
	for i := range id {
		id[i] = byte(c.r.Uint32())
	}
	return hex.EncodeToString(id[:])
}

// note keeps the last calls, for a report.
func (c *criClient) note(what string, t target, errs ...error) {
	line := what + " " + t.id[:min(13, len(t.id))]
	for _, err := range errs {
		c.calls++
		c.codes[status.Code(err)]++
		line += " " + status.Code(err).String()
	}
	c.history = append(c.history[max(0, len(c.history)-15):], line)
}
