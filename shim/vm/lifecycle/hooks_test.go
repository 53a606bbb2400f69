package lifecycle_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/hooks"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// createHooked creates a VM with a hook sidecar.
func (n *node) createHooked(t *testing.T) (id string, err error) {
	t.Helper()
	config := request(0)
	config.Mounts = []*runtimeapi.Mount{{ContainerPath: vmspec.HooksPath, HostPath: "/pods/1/volumes/kubernetes.io~empty-dir/sockets"}}
	return n.Create(t.Context(), n.addPod(t, "pod", map[string]string{vmspec.AnnotationHooks: `[{"image": "a"}]`}), config)
}

// TestHooks: sidecars are awaited before disks are made, change the domain, and learn of
// its end, also from a shim that did not start it.
func TestHooks(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id, err := n.createHooked(t)
		must(t, err)
		calls := n.script.Calls()
		if awaited, made := slices.Index(calls, "Hooks.Await"), slices.Index(calls, "Disks.Create"); awaited < 0 || awaited > made {
			t.Errorf("calls %v", calls)
		}
		must(t, n.Start(t.Context(), id))
		if xml := n.libvirt.XML(n.rec(t, id).Domain.UUID); !strings.Contains(xml, vmtest.HookTitle) {
			t.Errorf("the domain is %s", xml)
		}
		n.restart(t)
		n.run(t)
		must(t, n.Stop(t.Context(), id, 0))
		calls = n.script.Calls()
		if removed, called := slices.Index(calls, "Libvirt.Undefine"), slices.Index(calls, "Hooks.Shutdown"); removed < 0 || called < removed {
			t.Errorf("calls %v", calls)
		}
		must(t, n.Remove(t.Context(), id))
		n.wantNothing(t)
	})
}

// TestHooksAreOff: the node's administrator allows none.
func TestHooksAreOff(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.script.Fail("Hooks.Await", hooks.ErrOff)
		_, err := n.createHooked(t)
		wantError(t, err, "hook sidecars are off on this node")
		if !errors.Is(err, vmerrors.ErrInvalid) {
			t.Error(err)
		}
		n.wantNothing(t)
	})
}

// TestHookRefused: a hook that fails ends the start, and leaves nothing.
func TestHookRefused(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id, err := n.createHooked(t)
		must(t, err)
		n.script.Fail("Hooks.OnDefineDomain", errors.New("devices/hostdev: was added"))
		wantError(t, n.Start(t.Context(), id), "devices/hostdev")
		n.wantEnd(t, id, 128, "StartError", "devices/hostdev")
		must(t, n.Remove(t.Context(), id))
		n.wantNothing(t)
	})
}

// TestHookHangs: a sidecar that does not answer does not keep a VM from its end.
func TestHookHangs(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id, err := n.createHooked(t)
		must(t, err)
		must(t, n.Start(t.Context(), id))
		n.script.Hang("Hooks.Shutdown")
		begun := time.Now()
		must(t, n.Stop(t.Context(), id, 0))
		if took := time.Since(begun); took > 11*time.Second {
			t.Errorf("the end took %v", took)
		}
		must(t, n.Remove(t.Context(), id))
		n.wantNothing(t)
	})
}
