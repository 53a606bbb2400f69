package lifecycle_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const sourceAnnotation = "kubernetes.io/config.source"

// ofController are the annotations of a pod of the API server that the controller made.
func ofController() map[string]string {
	return map[string]string{vmspec.AnnotationVMI: masqueradeVMI, sourceAnnotation: "api"}
}

// startedIn starts the VM of a pod with annotations. Its guest obeys the power button.
func (n *node) startedIn(t *testing.T, annotations map[string]string) (id string) {
	t.Helper()
	id, err := n.Create(t.Context(), n.addPod(t, "pod", annotations), request(0))
	must(t, err)
	must(t, n.Start(t.Context(), id))
	n.libvirt.SetGuest(n.rec(t, id).Domain.UUID, vmtest.Guest{Obeys: 1})
	return id
}

// TestStopOfADisownedGuest: a guest whose pod the API server no longer has may have been replaced. It is paused at the
// first answer, and powered off at the second, without a word to the guest.
func TestStopOfADisownedGuest(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.startedIn(t, ofController())
		n.podLookup.Lose(0)
		must(t, n.Stop(t.Context(), id, 10*time.Minute))
		if n.script.Count("Libvirt.Shutdown") != 0 || n.script.Count("Libvirt.Pause") != 1 || n.script.Count("PodLookup.Gone") != 2 {
			t.Errorf("calls: %v", n.script.Calls())
		}
		n.wantEnd(t, id, 137, "Error", "the VM was powered off")
	})
}

// TestEndIsRemembered: the end of a guest outlives its container, so that its pod does not start again here. A pod
// that the controller did not make may start again.
func TestEndIsRemembered(t *testing.T) {
	for name, tt := range map[string]struct {
		annotations map[string]string
		run, kept   bool
	}{
		"ran":               {ofController(), true, true},
		"never ran":         {ofController(), false, false},
		"a pod of crictl's": {map[string]string{vmspec.AnnotationVMI: masqueradeVMI}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				n.run(t)
				id, err := n.Create(t.Context(), n.addPod(t, "pod", tt.annotations), request(0))
				must(t, err)
				if tt.run {
					must(t, n.Start(t.Context(), id))
				}
				n.script.Fail("Store.PutEnded", errors.New("no space left on device"))
				must(t, n.Remove(t.Context(), id)) // all the same
				n.script.Fail("Store.PutEnded", nil)
				id, err = n.Create(t.Context(), n.addPod(t, "again", tt.annotations), request(0))
				must(t, err)
				if tt.run {
					must(t, n.Start(t.Context(), id))
				}
				must(t, n.Remove(t.Context(), id))
				if e, found, err := n.store.EndedOf("uid-again"); err != nil || found != tt.kept || found && e.Reason != "Error" {
					t.Errorf("%+v, %t, %v", e, found, err)
				}
			})
		})
	}
}

// TestStopOfAnOwnedGuest: a guest whose pod exists, or is not reported missing, shuts down by itself.
func TestStopOfAnOwnedGuest(t *testing.T) {
	static := ofController()
	static[sourceAnnotation] = "file"
	for name, tt := range map[string]struct {
		annotations map[string]string
		before      func(*node)
		asked       int
	}{
		"the pod exists":               {ofController(), func(*node) {}, 1},
		"the second answer differs":    {ofController(), func(n *node) { n.podLookup.Lose(1) }, 2},
		"no answer":                    {ofController(), func(n *node) { n.script.Fail("PodLookup.Gone", errors.New("no route to host")) }, 1},
		"an answer that does not come": {ofController(), func(n *node) { n.script.Hang("PodLookup.Gone") }, 1},
		"a pod of crictl":              {map[string]string{vmspec.AnnotationVMI: masqueradeVMI}, func(n *node) { n.podLookup.Lose(0) }, 0},
		"a static pod":                 {static, func(n *node) { n.podLookup.Lose(0) }, 0},
		"a pod of another's":           {map[string]string{sourceAnnotation: "api"}, func(n *node) { n.podLookup.Lose(0) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				n.run(t)
				id := n.startedIn(t, tt.annotations)
				n.script.Reset()
				tt.before(n)
				must(t, n.Stop(t.Context(), id, 10*time.Minute))
				if got := n.script.Count("PodLookup.Gone"); got != tt.asked {
					t.Errorf("asked %d times, want %d", got, tt.asked)
				}
				if n.script.Count("Libvirt.Pause") != n.script.Count("Libvirt.Resume") {
					t.Errorf("calls: %v", n.script.Calls())
				}
				n.wantEnd(t, id, 0, "Completed", "")
			})
		})
	}
}
