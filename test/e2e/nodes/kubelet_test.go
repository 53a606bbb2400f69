//go:build cluster

package nodes

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// harm is what a user does to a VM whose guest lives on a node without a kubelet.
type harm struct {
	do func(t *testing.T, name, pod string)
	// lives: the guest must outlive it; else another guest must follow when its end is known.
	lives bool
	// spec changes the VM before that.
	spec func(spec object)
}

// harms are all deletions, and the like, that we can think of.
var harms = map[string]harm{
	"nothing":    {do: func(*testing.T, string, string) {}, lives: true},
	"vmi-delete": {do: func(t *testing.T, name, _ string) { kubectl(t, "delete", "vmi", name, "--wait=false") }},
	"pod-delete": {do: func(t *testing.T, _, pod string) { kubectl(t, "delete", pod, "--wait=false") }},
	"pod-force":  {do: func(t *testing.T, _, pod string) { force(t, pod) }},
	"pod-strip":  {do: strip, lives: true},
	"vmi-orphan": {do: func(t *testing.T, name, _ string) {
		kubectl(t, "delete", "vmi", name, "--cascade=orphan", "--wait=false")
	}},
	"vm-restart": {do: restart},
	"vm-again":   {do: again},
	"evict": {do: func(t *testing.T, _, pod string) {
		assert.NilError(t, evict(t.Context(), strings.TrimPrefix(pod, "pod/")))
	}},
	"unreachable": {do: func(*testing.T, string, string) {}, spec: leaveAtOnce},
	"vmi-force": {do: func(t *testing.T, name, _ string) {
		force(t, "vmi/"+name)
		unhold(t, "vmi/"+name)
	}},
}

// While a kubelet is away and its guests live, nothing that is deleted makes a second one start. When the
// kubelet is back each VM has one guest again.
func TestNoSecondGuestWhileTheKubeletIsAway(t *testing.T) {
	whole(t)
	pods, boots := map[string]string{}, map[string]string{}
	for name, h := range harms {
		create(t, vm(name, func(spec object) {
			rather(harmed)(spec)
			if h.spec != nil {
				h.spec(spec)
			}
		}))
	}
	for name := range harms {
		boots[name] = answer(t, name, "")
		pods[name] = kubectl(t, "get", "pods", "--selector=app="+name, "-o", "name")
	}
	watchTwo(t)
	back := away(t)
	waitFor(t, "node/"+harmed, "condition=Ready=Unknown")
	for name := range harms {
		waitFor(t, "vmi/"+name, "jsonpath={.status.phase}=Unknown")
	}
	kubectl(t, "cordon", harmed)
	t.Cleanup(func() { undo(t, "uncordon", harmed) })
	for name, h := range harms {
		h.do(t, name, pods[name])
	}
	kubectl(t, "--namespace=nodevirt", "delete", "pods", "--all", "--wait=false") // its kubelet is away, too
	waitWatchPeriod(t)
	for name := range harms {
		assert.NilError(t, guestRuns(name))
	}

	assert.NilError(t, back(t.Context()))
	for name, h := range harms {
		if !h.lives {
			answer(t, name, boots[name])
		} else if got := answer(t, name, ""); got != boots[name] {
			t.Errorf("%s was booted again", name)
		}
		assert.NilError(t, guestRuns(name))
	}
	kubectl(t, "delete", "vm", "--all") // at once, where each test's end takes one after the other
	clean(t)
}

func force(t *testing.T, object string) {
	kubectl(t, "delete", object, "--grace-period=0", "--force", "--wait=false")
}

// unhold takes an object's finalizers off, as people do whom something keeps waiting.
func unhold(t *testing.T, object string) {
	kubectl(t, "patch", object, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
}

// strip tries that with a pod.
func strip(t *testing.T, _, pod string) {
	_, err := suite.Kubectl(t.Context(), "patch", pod, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	if err == nil || !strings.Contains(err.Error(), "takes nodevirt.io/guest off when the guest has ended") {
		t.Errorf("the finalizer of %s: %v", pod, err)
	}
}

func restart(t *testing.T, name, _ string) {
	// A replica of the controller's may just be away.
	wait.Success(t, "virtctl restart", func(ctx context.Context) error {
		out, err := suite.VirtctlCommand(ctx, "restart", name).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// again removes a VM with all that holds it, and makes one of the same name.
func again(t *testing.T, name, _ string) {
	kubectl(t, "delete", "vm", name, "--wait=false")
	unhold(t, "vm/"+name)
	wait.Success(t, "no VM and no instance", func(ctx context.Context) error {
		out, err := suite.Kubectl(ctx, "get", "vm,vmi", "-o", "name", "--field-selector=metadata.name="+name)
		if err != nil || strings.TrimSpace(out) == "" {
			return err
		}
		// The garbage collector, or the controller, may hold it again.
		_, _ = suite.Kubectl(ctx, "delete", "vmi", name, "--ignore-not-found", "--wait=false")
		_, _ = suite.Kubectl(ctx, "patch", "vmi", name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
		return fmt.Errorf("there are still %s", out)
	})
	wait.Success(t, "a VM of that name", func(ctx context.Context) error {
		return apply(ctx, vm(name, rather(harmed)))
	})
}

// evict asks for a pod's eviction, as a drain does.
func evict(ctx context.Context, pod string) error {
	cmd := suite.KubectlCommand(ctx, "create", "--raw", "/api/v1/namespaces/default/pods/"+pod+"/eviction", "-f", "-")
	cmd.Stdin = strings.NewReader(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"` + pod + `","namespace":"default"}}`)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("evict %s: %w: %s", pod, err, out)
	}
	return nil
}

// leaveAtOnce has Kubernetes delete the pod as soon as its node is lost.
func leaveAtOnce(spec object) {
	spec["tolerations"] = []object{{
		"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1,
	}}
}
