package agent

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/cmd/nodevirt-installer/internal/cluster"
	"github.com/nodevirt/nodevirt/test/apiserver"
	"github.com/nodevirt/nodevirt/test/wait"
)

const namespace = "nodevirt-installer"

// podConfig returns the access of a pod of the DaemonSet on a node.
func podConfig(t *testing.T, s *apiserver.Server, admin client.Client, node string) *rest.Config {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "installer-" + node},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: namespace,
			Containers: []corev1.Container{{Name: "installer", Image: "registry.example.com/installer"}},
		},
	}
	if err := admin.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: namespace}}
	if err := admin.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	c := s.Config()
	c.BearerToken = request.Status.Token
	return c
}

// TestCluster labels a Node at a real API server, with the DaemonSet's rights and policy.
func TestCluster(t *testing.T) {
	s := apiserver.ForTest(t)
	const manifests = "../../../../deploy/installer/"
	for _, file := range []string{"namespace", "serviceaccount", "rbac", "policy", "daemonset"} {
		if err := s.Apply(t.Context(), manifests+file+".yaml"); err != nil {
			t.Fatal(err)
		}
	}
	admin, err := client.New(s.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"node-1", "node-2"} {
		if err := admin.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"zone": "a"}}}); err != nil {
			t.Fatal(err)
		}
	}
	config := podConfig(t, s, admin, "node-1")
	checkPolicy(t, config)

	ctx, stop := context.WithCancel(t.Context())
	n, err := cluster.Watch(ctx, config, "node-1")
	if err != nil {
		t.Fatal(err)
	}
	h := &fakeHost{}
	ended := make(chan struct{})
	a := newAgent(n, h)
	a.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	go func() { a.Run(ctx); close(ended) }()
	t.Cleanup(func() { stop(); <-ended; n.Close() })

	until := func(what string, installed bool, owner string) {
		t.Helper()
		wait.Until(t, what, func() bool {
			o := &corev1.Node{}
			_, is, _ := h.get()
			return admin.Get(t.Context(), client.ObjectKey{Name: "node-1"}, o) == nil && is == installed && o.Labels[OwnerLabel] == owner
		})
	}
	label(t, admin, `"true"`)
	until("installation", true, Owner)
	label(t, admin, `null`)
	until("removal", false, "")
	wait.Until(t, "events", func() bool {
		list := &corev1.EventList{}
		if err := admin.List(t.Context(), list, client.InNamespace("default")); err != nil {
			return false
		}
		var reasons []string
		for _, e := range list.Items {
			if e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == "node-1" {
				reasons = append(reasons, e.Reason)
			}
		}
		text := strings.Join(reasons, " ")
		return strings.Contains(text, Installed) && strings.Contains(text, Uninstalled)
	})
}

func label(t *testing.T, c client.Client, value string) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"`+InstallLabel+`":`+value+`}}}`))
	if err := c.Patch(t.Context(), n, patch); err != nil {
		t.Fatal(err)
	}
}

// checkPolicy tries what a stolen token must not do. The API server enforces a new policy after a moment.
func checkPolicy(t *testing.T, config *rest.Config) {
	t.Helper()
	pod, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	try := func(node, patch string) error {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
		return pod.Patch(t.Context(), n, client.RawPatch("application/merge-patch+json", []byte(patch)))
	}
	wait.Success(t, "the policy", func(context.Context) error {
		err := try("node-2", `{"metadata":{"labels":{"`+OwnerLabel+`":"x"}}}`)
		if apierrors.IsForbidden(err) {
			return nil
		}
		return fmt.Errorf("another node's label: %w", err)
	})
	if err := try("node-1", `{"metadata":{"labels":{"`+OwnerLabel+`":null}}}`); err != nil {
		t.Fatal(err)
	}
	for _, patch := range []string{
		`{"metadata":{"labels":{"zone":"b"}}}`,
		`{"metadata":{"labels":{"zone":null}}}`,
		`{"metadata":{"labels":{"` + InstallLabel + `":"true"}}}`,
		`{"metadata":{"annotations":{"a":"b"}}}`,
		`{"metadata":{"finalizers":["a/b"]}}`,
		`{"spec":{"unschedulable":true}}`,
		`{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`,
	} {
		if err := try("node-1", patch); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", patch, err)
		}
	}
}
