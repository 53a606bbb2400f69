package sandbox

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/nodeproblems"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
)

// gonePause is the time between two attempts to remove what is left of pods that are gone.
var gonePause = background.Pause{First: time.Second, Limit: time.Minute}

// gone removes the sandboxes that containerd no longer has, and their VMs.
type gone struct {
	*Sandboxes
	removeVMs func(ctx context.Context, sandboxID string) error
	// before are the sandboxes of the time when the shim started. Those that are removed later are the business of
	// the calls that remove them.
	before []string
	logged map[string]string // the last error of each sandbox
}

// remove reports whether nothing is left to remove.
func (g *gone) remove(ctx context.Context, all []*runtimeapi.PodSandbox) (done bool) {
	there := map[string]bool{}
	for _, one := range all {
		there[one.GetId()] = true
	}
	var lost []record.Sandbox
	for _, id := range g.before {
		if r, known := g.table.Sandbox(id); known && !there[id] {
			lost = append(lost, r)
		}
	}
	refused := g.forgetful(lost, all)
	g.problems.Set(nodeproblems.PodsLost, refused)
	done = true
	for _, r := range lost {
		err := refused
		if err == nil || len(g.table.All(r.ID)) == 0 {
			err = g.removeOne(ctx, r.ID)
		}
		if err != nil {
			done = false
			g.report(r.ID, err)
		}
	}
	return done
}

func (g *gone) removeOne(ctx context.Context, id string) error {
	if err := g.removeVMs(ctx, id); err != nil {
		return fmt.Errorf("remove the VMs of a sandbox that is gone: %w", err)
	}
	if err := g.Forget(id); err != nil {
		return fmt.Errorf("forget a sandbox that is gone: %w", err)
	}
	g.log.Info("a sandbox is gone", "sandbox", id)
	return nil
}

// report logs an error of a sandbox once.
func (g *gone) report(id string, err error) {
	if g.logged[id] == err.Error() {
		return
	}
	g.logged[id] = err.Error()
	g.log.Error("a sandbox is gone, and its VMs are not removed, retrying", "sandbox", id, "error", err)
}

// forgetful returns an error if containerd has lost its pods, and did not remove them: it knows no pod from before
// the VMs' pods, and the VMs run. So it is with another root folder, or without its metadata. A pod that was removed
// while the shim was away leaves others, such as those of the network.
func (g *gone) forgetful(lost []record.Sandbox, all []*runtimeapi.PodSandbox) error {
	var newest int64
	runs := 0
	for _, r := range lost {
		newest = max(newest, r.CreatedAt.UnixNano())
		if _, is := g.table.RunningIn(r.ID); is {
			runs++
		}
	}
	if runs == 0 {
		return nil
	}
	for _, one := range all {
		if one.GetCreatedAt() <= newest {
			return nil
		}
	}
	return fmt.Errorf("containerd knows no pod from before these VMs' pods, so it may have lost its data, and %d VMs run on: "+
		"give containerd its root folder back; or, to end a VM, run \"crictl stop -t 60 ID\" and \"crictl rm ID\" with an ID of "+
		"\"nodevirt ps\"", runs)
}
