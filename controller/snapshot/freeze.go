package snapshot

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// The controls of the VM for its guest's file systems.
const (
	controlFreeze     = "freeze"
	controlKeepFrozen = "keep-frozen"
	controlUnfreeze   = "unfreeze"
	// answerFrozen is keep-frozen's if the guest has been frozen since the freeze began.
	answerFrozen = "frozen"
)

const (
	// freezeLimit is how long a guest stays frozen after the controller has died.
	freezeLimit = 10 * time.Second
	// renewal is the time after which a freeze is extended.
	renewal = 3 * time.Second
	// orderTime bounds one order to a node.
	orderTime = 15 * time.Second
	// maxAnswer bounds a node's answer, in bytes.
	maxAnswer = 4 << 10
	// maxReason bounds foreign text in a status, in bytes.
	maxReason = 1024
)

// renewals are the times at which freezes were last extended, by the UIDs of snapshots.
type renewals struct {
	mu sync.Mutex
	at map[types.UID]time.Time
}

func (r *renewals) of(s *vmSnapshot) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at[s.UID]
}

// set notes a time; the zero time forgets the snapshot.
func (r *renewals) set(s *vmSnapshot, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at.IsZero() {
		delete(r.at, s.UID)
		return
	}
	if r.at == nil {
		r.at = map[types.UID]time.Time{}
	}
	r.at[s.UID] = at
}

// guests freezes the file systems of sources' guests.
type guests struct {
	pods     pods
	nodes    nodes
	now      func() time.Time
	renewals renewals
}

// forget forgets the freeze of a snapshot's source.
func (g *guests) forget(s *vmSnapshot) { g.renewals.set(s, time.Time{}) }

// order gives an order to the source's VM, and returns the node's answer.
func (g *guests) order(ctx context.Context, w *work, control string, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, orderTime)
	defer cancel()
	p, err := g.pods.PodOf(ctx, w.vmi, pod.Current(w.vmi))
	if err == nil && p == nil {
		err = errors.New("the pod is gone")
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", control, err)
	}
	answer, err := g.nodes.Control(ctx, p, maxAnswer, control, arguments...)
	if err != nil {
		return "", fmt.Errorf("%s in pod %s on node %s: %s", control, p.Name, p.Spec.NodeName, clip(err.Error()))
	}
	return strings.TrimSpace(string(answer)), nil
}

// freeze freezes the guest's file systems.
func (g *guests) freeze(ctx context.Context, w *work) error {
	began := g.now()
	if _, err := g.order(ctx, w, controlFreeze, freezeLimit.String()); err != nil {
		return err
	}
	g.renewals.set(w.s, began)
	return nil
}

// frozen extends the guest's freeze, and reports whether it has lasted. Unless at once is
// set, it does so only if the last time is a while ago.
func (g *guests) frozen(ctx context.Context, w *work, atOnce bool) (bool, error) {
	now := g.now()
	if !atOnce && now.Sub(g.renewals.of(w.s)) < renewal {
		return true, nil
	}
	answer, err := g.order(ctx, w, controlKeepFrozen, freezeLimit.String())
	if err != nil {
		return false, err
	}
	g.renewals.set(w.s, now)
	return answer == answerFrozen, nil
}

// clip bounds foreign text.
func clip(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}
