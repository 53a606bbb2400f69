package nodelabels

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientapi "k8s.io/client-go/tools/clientcmd/api"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/nodeproblems"
	"github.com/nodevirt/nodevirt/test/apiserver"
)

// TestAPIServer labels a node, and gives it its condition, of a real API server, with a node's credential and rights.
func TestAPIServer(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens")
	const tokens = "test-admin,admin,1,\"system:masters\"\ntest-node,system:node:node-1,2,\"system:nodes\"\n"
	if err := os.WriteFile(file, []byte(tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	s := apiserver.ForTest(t, "--token-auth-file="+file, "--authorization-mode=Node", "--enable-admission-plugins=NodeRestriction")
	c, err := kube.New(s.Config(), kube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(dir, "kubelet.conf")
	if err := s.WriteKubeconfig(kubeconfig, clientapi.AuthInfo{Token: "test-node"}); err != nil {
		t.Fatal(err)
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{
		"kubernetes.io/hostname": "node-1", "cpu-model.node.kubevirt.io/EPYC": "true",
	}}}
	if err := c.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}} // as a kubelet writes
	if err := c.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	w := New(kubeconfig, func(context.Context) (domain.Capabilities, error) {
		return domain.Capabilities{Models: []string{"Nehalem"}, Machines: []string{"q35"}, Hyperv: []string{"ipi"}}, nil
	}, slog.New(slog.NewTextHandler(t.Output(), nil)))
	// The API server creates the roles by which anyone may ask who they are after its start.
	for end := time.Now().Add(2 * time.Minute); w.written == nil && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		w.step(t.Context())
	}
	NewCondition(kubeconfig, func() []nodeproblems.Problem {
		return []nodeproblems.Problem{{Reason: nodeproblems.PodsLost, Message: "restore its root"}}
	}, slog.New(slog.NewTextHandler(t.Output(), nil))).step(t.Context())
	if err := c.Get(t.Context(), kube.ObjectKeyFromObject(n), n); err != nil {
		t.Fatal(err)
	}
	if all := n.Status.Conditions; len(all) != 2 || !slices.ContainsFunc(all, func(c corev1.NodeCondition) bool {
		return c.Type == Degraded && c.Status == corev1.ConditionTrue && c.Reason == "PodsLost" && c.Message == "restore its root"
	}) {
		t.Errorf("conditions %v", all)
	}
	for key, want := range map[string]string{
		"kubernetes.io/hostname": "node-1", "cpu-model.node.kubevirt.io/EPYC": "", "cpu-model.node.kubevirt.io/Nehalem": "true",
		"machine-type.node.kubevirt.io/q35": "true", "hyperv.node.kubevirt.io/ipi": "true", "kubevirt.io/schedulable": "true",
	} {
		if got := n.Labels[key]; got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	setsACondition(t, c, n, kubeconfig)
}

// setsACondition: the node's credential may write a condition of its Node, and the annotations that belong to it. The conditions of the kubelet stay, and one that is
// the same is not written again.
func setsACondition(t *testing.T, c kube.Client, n *corev1.Node, kubeconfig string) {
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := c.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	const list = "nodevirt.io/test-list"
	writer := NewConditions(kubeconfig)
	versions := map[string]bool{}
	for _, one := range []NodeCondition{
		{Type: "nodevirt.io/Test", Status: "False", Reason: "Fine"}, {Type: "nodevirt.io/Test", Status: "False", Reason: "Fine"},
		{Type: "nodevirt.io/Test", Status: "True", Reason: "Lost", Message: "two guests"},
		{Type: "nodevirt.io/Test", Status: "True", Reason: "Lost", Message: "two guests", Annotations: map[string]string{list: "a, b"}},
		{Type: "nodevirt.io/Test", Status: "True", Reason: "Lost", Message: "two guests", Annotations: map[string]string{list: "a, b"}},
		{Type: "nodevirt.io/Test", Status: "True", Reason: "Lost", Message: "two guests", Annotations: map[string]string{list: ""}},
	} {
		if err := writer.Set(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), kube.ObjectKeyFromObject(n), n); err != nil {
			t.Fatal(err)
		}
		if all := n.Status.Conditions; len(all) != 2 || string(all[1].Type) != one.Type && string(all[0].Type) != one.Type {
			t.Fatalf("%+v", all)
		}
		for _, has := range n.Status.Conditions {
			if string(has.Type) == one.Type && (string(has.Status) != one.Status || has.Reason != one.Reason || has.Message != one.Message || has.LastHeartbeatTime.IsZero()) {
				t.Errorf("%+v, want %+v", has, one)
			}
		}
		if got, has := n.Annotations[list]; got != one.Annotations[list] || has != (got != "") {
			t.Errorf("annotation %q, %t; want %q", got, has, one.Annotations[list])
		}
		versions[n.ResourceVersion] = true
	}
	if len(versions) != 4 {
		t.Errorf("%d versions of the Node for four different states", len(versions))
	}
}
