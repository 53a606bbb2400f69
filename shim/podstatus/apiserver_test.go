package podstatus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientapi "k8s.io/client-go/tools/clientcmd/api"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/shim/kubelet"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/test/apiserver"
)

// tokens are of an administrator and of a node.
const (
	nodeName  = "node-1"
	nodeToken = "test-node"
	tokens    = `test-admin,admin,1,"system:masters"
` + nodeToken + `,system:node:` + nodeName + `,2,"system:nodes"
`
)

// patience bounds every wait.
const patience = 2 * time.Minute

// rig is a real API server to which a writer reports pods with a node's
// credential.
type rig struct {
	*testing.T
	server     *apiserver.Server
	client     kube.Client
	writer     *Writer
	kubeconfig string
}

func newRig(t *testing.T) *rig {
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens")
	if err := os.WriteFile(file, []byte(tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	s := apiserver.ForTest(t, "--token-auth-file="+file, "--authorization-mode=Node", "--enable-admission-plugins=NodeRestriction")
	c, err := kube.New(s.Config(), kube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(dir, "kubelet.conf")
	w := New(kubeconfig, slog.New(slog.NewTextHandler(t.Output(), nil)))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return &rig{T: t, server: s, client: c, writer: w, kubeconfig: kubeconfig}
}

// credential writes the node's kubeconfig.
func (r *rig) credential() {
	r.Helper()
	if err := r.server.WriteKubeconfig(r.kubeconfig, clientapi.AuthInfo{Token: nodeToken}); err != nil {
		r.Fatal(err)
	}
}

// pod makes a pod on a node, with a condition of the kubelet's.
func (r *rig) pod(name, node string) Pod {
	r.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if err := r.client.Create(r.Context(), p); err != nil {
		r.Fatal(err)
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if err := r.client.Status().Update(r.Context(), p); err != nil {
		r.Fatal(err)
	}
	return Pod{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)}
}

// find reads one condition of a pod, the zero value where there is none.
func (r *rig) find(ctx context.Context, pod Pod, kind corev1.PodConditionType) (corev1.PodCondition, error) {
	var p corev1.Pod
	if err := r.client.Get(ctx, kube.ObjectKey{Namespace: pod.Namespace, Name: pod.Name}, &p); err != nil {
		return corev1.PodCondition{}, err
	}
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c, nil
		}
	}
	return corev1.PodCondition{}, nil
}

// await waits until a condition of a pod has a reason.
func (r *rig) await(pod Pod, kind corev1.PodConditionType, reason string) (c corev1.PodCondition) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	for {
		c, err := r.find(ctx, pod, kind)
		if err == nil && c.Reason != reason {
			err = fmt.Errorf("%+v", c)
		}
		if err == nil {
			return c
		}
		select {
		case <-ctx.Done():
			r.Fatalf("%s of %s: %v, want reason %s", kind, pod.Name, err, reason)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// awaitEvent waits until a pod has an event, as kubectl describe shows it.
func (r *rig) awaitEvent(pod Pod, reason, message string) {
	r.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		var all corev1.EventList
		if err := r.client.List(r.Context(), &all, kube.InNamespace(pod.Namespace)); err != nil {
			r.Fatal(err)
		}
		for _, e := range all.Items {
			if e.InvolvedObject.UID == types.UID(pod.UID) && e.Reason == reason && e.Message == message && e.Type == corev1.EventTypeWarning && e.Count == 1 {
				return
			}
		}
		if time.Now().After(end) {
			r.Fatalf("%d events, none of %s: %s", len(all.Items), pod.Name, reason)
		}
	}
}

// TestAPIServer asks a real one.
func TestAPIServer(t *testing.T) {
	r := newRig(t)
	r.writesAVM()
	r.onlyItsOwnPods()
	r.listsItsPods()
}

// listsItsPods: the node's credential may list its own pods, whose versions change with them, and reads the server's version.
func (r *rig) listsItsPods() {
	t := r.T
	lookup := NewLookup(r.kubeconfig)
	before, err := lookup.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	own, other := r.pod("listed", nodeName), r.pod("elsewhere", "node-2")
	if after, err := lookup.Revision(t.Context()); err != nil || after <= before {
		t.Errorf("the version %d, and %d before: %v", after, before, err)
	}
	list := func() map[string]Listed {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) { // the server's cache may be behind
			all, ok, err := lookup.All(t.Context())
			if err != nil || !ok {
				t.Fatalf("%t, %v", ok, err)
			}
			if all[own.UID].Version != "" || time.Now().After(end) {
				return all
			}
		}
	}
	all := list()
	if _, there := all[other.UID]; all[own.UID].Pod != own || there {
		t.Errorf("%v", all)
	}
	version, err := (&client{api: kubelet.New(r.kubeconfig)}).patch(t.Context(), own, running(true, "").conditions(time.Now()))
	if err != nil || version == all[own.UID].Version {
		t.Errorf("version %q after a change, %q before: %v", version, all[own.UID].Version, err)
	}
	for end := time.Now().Add(patience); list()[own.UID].Version != version && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	if got := list()[own.UID].Version; got != version {
		t.Errorf("the list has version %q, the change made %q", got, version)
	}
}

// writesAVM: the server takes what the writer sends, from a node's credential that came late, merges
// it with what is the kubelet's, and gets the last facts after it was away.
func (r *rig) writesAVM() {
	t := r.T
	p := r.pod("vm", nodeName)
	r.writer.Set(p, Facts{Reason: condition.ReasonCreateFailed, Message: "no disk in the image"})
	r.credential()
	if c := r.await(p, condition.VMReady, condition.ReasonCreateFailed); c.Message != "no disk in the image" || c.Status != corev1.ConditionFalse {
		t.Errorf("%+v", c)
	}
	bare := r.pod("bare", nodeName)
	r.writer.Set(bare, Facts{Reason: condition.ReasonNoVM, Message: "no disk in the image", Event: true})
	r.awaitEvent(bare, condition.ReasonNoVM, "no disk in the image")
	r.writer.Set(p, running(true, "web"))
	if c := r.await(p, condition.VMReady, condition.ReasonRunning); c.Message != "" || c.Status != corev1.ConditionTrue || c.LastTransitionTime.IsZero() {
		t.Errorf("%+v", c)
	}
	reported := r.await(p, condition.GuestInfo, condition.ReasonAgentReported)
	if g, err := condition.Parse(reported.Message); err != nil || g.Hostname != "web" {
		t.Errorf("%+v, %v", reported, err)
	}
	if c, err := r.find(t.Context(), p, corev1.PodReady); err != nil || c.Status != corev1.ConditionTrue {
		t.Errorf("the kubelet's condition: %+v, %v", c, err)
	}

	r.server.Stop()
	r.writer.Set(p, Facts{Reason: "GuestPanicked", Message: "the guest's kernel panicked"})
	if err := r.server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := r.await(p, condition.VMReady, "GuestPanicked"); c.Message != "the guest's kernel panicked" {
		t.Errorf("%+v", c)
	}

	// A new shim leaves what is right as it is.
	ended := r.await(p, condition.VMReady, "GuestPanicked")
	again := New(r.kubeconfig, slog.New(slog.DiscardHandler))
	again.SetAgain(p, Facts{Reason: "GuestPanicked", Message: "the guest's kernel panicked"})
	e := again.entries[p.UID]
	again.write(t.Context(), e)
	if e.failures > 0 || len(e.changes()) > 0 {
		t.Errorf("%d failures, %v to write", e.failures, e.changes())
	}
	if c := r.await(p, condition.VMReady, "GuestPanicked"); !c.LastTransitionTime.Equal(&ended.LastTransitionTime) {
		t.Errorf("%v, was %v", c.LastTransitionTime, ended.LastTransitionTime)
	}
}

// onlyItsOwnPods: Kubernetes refuses a node's words on the pods of others, and on ones that are gone.
func (r *rig) onlyItsOwnPods() {
	t := r.T
	c := &client{api: kubelet.New(r.kubeconfig)}
	facts := running(false, "").conditions(time.Now())
	other := r.pod("other", "node-2")
	if _, err := c.patch(t.Context(), other, facts); err == nil || errors.Is(err, kubelet.ErrAway) {
		t.Errorf("of another node's pod: %v", err)
	}
	if c, err := r.find(t.Context(), other, condition.VMReady); err != nil || c.Type != "" {
		t.Errorf("%+v, %v", c, err)
	}
	own := r.pod("own", nodeName)
	if version, err := c.patch(t.Context(), own, facts); err != nil || version == "" {
		t.Errorf("report of the node's pod: %v", err)
	}
	was := own
	was.UID = "of-another-pod-that-had-this-name"
	if _, err := c.patch(t.Context(), was, facts); !errors.Is(err, kubelet.ErrGone) {
		t.Errorf("of a pod that is another one now: %v", err)
	}
	if _, _, err := c.conditions(t.Context(), was); !errors.Is(err, kubelet.ErrGone) {
		t.Errorf("of a pod that is another one now: %v", err)
	}
	was.Name = "nobody"
	if _, err := c.patch(t.Context(), was, facts); !errors.Is(err, kubelet.ErrGone) {
		t.Errorf("of no pod: %v", err)
	}
	// What a pod's name could be were it a stranger's text stays one part of the path.
	was.Name = "../../pods/own"
	if _, err := c.patch(t.Context(), was, facts); err == nil {
		t.Error("a name with slashes reaches a pod")
	}
}
