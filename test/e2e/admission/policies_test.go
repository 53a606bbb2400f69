package admission

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodevirt/nodevirt/controller/kinds"
	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// beyond is an annotation that may reach beyond its pod.
const beyond = "nodevirt.io/reaches-beyond"

// userClient is that of a user who may do everything.
func userClient(t *testing.T, user string) client.Client {
	t.Helper()
	c, err := newClient(as(user, "system:masters"))
	assert.NilError(t, err)
	return c
}

// newPod creates a pod that could be a VM's, and removes it when the test ends.
func newPod(t *testing.T, c client.Client, name string, annotations map[string]string) (*corev1.Pod, error) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "virt-launcher-" + name, Namespace: "default", Annotations: annotations,
			Labels: map[string]string{"kubevirt.io": "virt-launcher"},
		},
		Spec: corev1.PodSpec{RuntimeClassName: new("vm"), Containers: []corev1.Container{{Name: "guest", Image: "registry.example.com/guest"}}},
	}
	if err := c.Create(t.Context(), pod); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := c.Delete(context.WithoutCancel(t.Context()), pod, client.GracePeriodSeconds(0)); err != nil {
			t.Error(err)
		}
	})
	return pod, nil
}

// TestAnnotations: annotations that reach beyond a pod are the controller's, in
// every way in which a pod gets some.
func TestAnnotations(t *testing.T) {
	alice, us := userClient(t, "alice"), userClient(t, account)
	harmless := map[string]string{"example.com/note": "x", vmspec.AnnotationUserData: "#cloud-config"}
	if _, err := newPod(t, alice, "created", map[string]string{beyond: "x"}); !refusedAnnotation(err) {
		t.Errorf("create: %v", err)
	}
	theirs, err := newPod(t, alice, "theirs", harmless)
	assert.NilError(t, err)
	ours, err := newPod(t, us, "ours", map[string]string{beyond: "x"})
	assert.NilError(t, err)
	annotate := func(value string) client.Patch {
		return client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"annotations": {"`+beyond+`": `+value+`}}}`))
	}
	for name, err := range map[string]error{
		"set":            alice.Patch(t.Context(), theirs.DeepCopy(), annotate(`"y"`)),
		"change":         alice.Patch(t.Context(), ours.DeepCopy(), annotate(`"y"`)),
		"take away":      alice.Patch(t.Context(), ours.DeepCopy(), annotate(`null`)),
		"set by status":  alice.Status().Patch(t.Context(), theirs.DeepCopy(), annotate(`"y"`)),
		"set by binding": bind(t, alice, theirs),
	} {
		if !refusedAnnotation(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// These take no annotations.
	for _, subresource := range []string{"resize", "ephemeralcontainers"} {
		if err := alice.SubResource(subresource).Patch(t.Context(), theirs.DeepCopy(), annotate(`"y"`)); err != nil {
			t.Errorf("%s: %v", subresource, err)
		}
	}
	for pod, want := range map[*corev1.Pod]string{theirs: "", ours: "x"} {
		if err := alice.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || pod.Annotations[beyond] != want {
			t.Errorf("pod %s has %q: %v", pod.Name, pod.Annotations[beyond], err)
		}
	}
	for name, err := range map[string]error{
		"label ours":           alice.Patch(t.Context(), ours.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"labels": {"a": "b"}}}`))),
		"annotate ours":        alice.Patch(t.Context(), ours.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"annotations": {"a": "b"}}}`))),
		"status of ours":       alice.Status().Patch(t.Context(), ours.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"status": {"message": "x"}}`))),
		"change by controller": us.Patch(t.Context(), ours.DeepCopy(), annotate(`"z"`)),
		"evict":                alice.SubResource("eviction").Create(t.Context(), theirs.DeepCopy(), &policyv1.Eviction{}, client.DryRunAll),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func refusedAnnotation(err error) bool {
	return apierrors.IsForbidden(err) &&
		strings.Contains(err.Error(), "metadata.annotations: only nodevirt's controller sets or changes "+beyond)
}

// bind puts a pod on a node, with an annotation that becomes the pod's.
func bind(t *testing.T, c client.Client, pod *corev1.Pod) error {
	t.Helper()
	return c.SubResource("binding").Create(t.Context(), pod.DeepCopy(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, Annotations: map[string]string{beyond: "x"}},
		Target:     corev1.ObjectReference{Kind: "Node", Name: "node"},
	})
}

// TestNodesGuests: only the controller asks a node for the guests of all namespaces, by whichever pod.
func TestNodesGuests(t *testing.T) {
	alice := userClient(t, "alice")
	vms, err := newPod(t, alice, "asked", nil)
	assert.NilError(t, err)
	ask := func(user string, command ...string) error {
		cluster, err := kubernetes.NewForConfig(as(user, "system:masters"))
		assert.NilError(t, err)
		return cluster.CoreV1().RESTClient().Post().Resource("pods").Namespace("default").Name(vms.Name).SubResource("exec").
			VersionedParams(&corev1.PodExecOptions{Container: "guest", Command: command, Stdout: true}, scheme.ParameterCodec).Do(t.Context()).Error()
	}
	const refusal = "only nodevirt's controller asks a node for its guests"
	order := "nodevirt.io/" + condition.OrderGuests
	if err := ask("alice", order, "{}"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), refusal) {
		t.Errorf("a user: %v", err)
	}
	for name, err := range map[string]error{
		"another order":  ask("alice", "nodevirt.io/pause"),
		"a command":      ask("alice", "echo", order),
		"no command":     ask("alice"),
		"the controller": ask(account, order, "{}"),
	} {
		if err == nil || apierrors.IsForbidden(err) { // the pod is on no node
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFreeAnnotations holds the policy's list against the annotations that a node
// knows to stay in their pod: one that is new must be put into the list, or be the
// controller's.
func TestFreeAnnotations(t *testing.T) {
	text, err := os.ReadFile(root + "deploy/kubernetes/policies.yaml")
	assert.NilError(t, err)
	first, _, _ := strings.Cut(string(text), "\n---\n")
	var policy struct {
		Spec struct {
			Variables []struct{ Name, Expression string }
		}
	}
	assert.NilError(t, yaml.Unmarshal([]byte(first), &policy))
	var listed []string
	for _, v := range policy.Spec.Variables {
		if v.Name == "free" {
			assert.NilError(t, yaml.Unmarshal([]byte(v.Expression), &listed))
		}
	}
	if want := slices.Sorted(slices.Values(manifest.PodAnnotations())); !slices.Equal(listed, want) {
		t.Errorf("the policy lets all users set %q; those that stay in a pod are %q", listed, want)
	}
}

// TestStatus: only the controller writes the status of a VM and the number of replicas, and who may do so in
// all namespaces. A namespace's owner may not.
func TestStatus(t *testing.T) {
	alice, us := userClient(t, "alice"), userClient(t, account)
	owner, err := newClient(as("owner"))
	assert.NilError(t, err)
	all := []string{"*"}
	for _, o := range []client.Object{
		&rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Name: "status", Namespace: "default"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: all, Resources: all, Verbs: all}},
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "status", Namespace: "default"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "status"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "owner"}},
		},
	} {
		create(t, alice, o)
	}
	for name, c := range map[string]struct{ field, value string }{
		"vm-halted": {"created", "true"}, "set-zero": {"readyReplicas", "7"},
	} {
		o, _ := read(t, root+"controller/admission/testdata/taken/"+name+".yaml")
		o.SetName("status")
		create(t, alice, o)
		told := client.RawPatch("application/merge-patch+json", []byte(`{"status": {"`+c.field+`": `+c.value+`}}`))
		if err := owner.Status().Patch(t.Context(), o.DeepCopy(), told); !apierrors.IsForbidden(err) ||
			!strings.Contains(err.Error(), "status: only nodevirt's controller writes it") {
			t.Errorf("status of %s: %v", name, err)
		}
		other := o.DeepCopy()
		assert.NilError(t, owner.Patch(t.Context(), other, told))
		if got, _, _ := unstructured.NestedFieldNoCopy(other.Object, "status", c.field); fmt.Sprint(got) == c.value {
			t.Errorf("the object %s itself takes a status", name)
		}
		for by, c := range map[string]client.Client{"the controller": us, "a cluster's administrator": alice} {
			if err := c.Status().Patch(t.Context(), o.DeepCopy(), told); err != nil {
				t.Errorf("by %s, of %s: %v", by, name, err)
			}
		}
	}
}

// create creates an object, and deletes it when the test ends.
func create(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	assert.NilError(t, c.Create(t.Context(), o))
	t.Cleanup(func() {
		if err := c.Delete(context.WithoutCancel(t.Context()), o); err != nil {
			t.Error(err)
		}
	})
}

// TestCRDsStay: while nodevirt is installed, not even an administrator deletes its CRDs, and with them every VM. Other
// software's CRDs go as before.
func TestCRDsStay(t *testing.T) {
	admin := userClient(t, "admin")
	for _, k := range kinds.All() {
		crd := newCRD(k.Resource() + "." + k.Version.Group)
		err := admin.Delete(t.Context(), crd)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "deletes every VM") {
			t.Errorf("delete %s: %v", crd.GetName(), err)
		}
		if err := admin.Get(t.Context(), client.ObjectKeyFromObject(crd), crd); err != nil || crd.GetDeletionTimestamp() != nil {
			t.Errorf("%s is gone or going: %v", crd.GetName(), err)
		}
	}
	other := newCRD("widgets.kubevirt.io")
	other.Object["spec"] = map[string]any{
		"group": "kubevirt.io", "scope": "Namespaced", "names": map[string]any{"kind": "Widget", "plural": "widgets"},
		"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
			"openAPIV3Schema": map[string]any{"type": "object"},
		}}},
	}
	assert.NilError(t, admin.Create(t.Context(), other))
	assert.NilError(t, admin.Delete(t.Context(), other))
}

func newCRD(name string) *unstructured.Unstructured {
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName(name)
	return crd
}

// TestRequireVM: the example of a policy refuses pods of the RuntimeClass that do not name their VM.
func TestRequireVM(t *testing.T) {
	alice := userClient(t, "alice")
	text, err := os.ReadFile(root + "examples/require-vm.yaml")
	assert.NilError(t, err)
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		object := new(unstructured.Unstructured)
		assert.NilError(t, yaml.Unmarshal([]byte(part), &object.Object))
		assert.NilError(t, alice.Create(t.Context(), object))
		t.Cleanup(func() {
			if err := alice.Delete(context.WithoutCancel(t.Context()), object); err != nil {
				t.Error(err)
			}
		})
	}
	unnamed := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "unnamed", Namespace: "default"},
		Spec:       corev1.PodSpec{RuntimeClassName: new("vm"), Containers: []corev1.Container{{Name: "guest", Image: "registry.example.com/guest"}}},
	}
	refused := func() bool {
		err := alice.Create(t.Context(), unnamed.DeepCopy())
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "name the VM's container in nodevirt.io/vm-container")
	}
	for end := time.Now().Add(time.Minute); !refused(); time.Sleep(time.Second) { // the API server takes a moment for a new policy
		if time.Now().After(end) {
			t.Fatal("a pod that names no VM is created")
		}
		assert.NilError(t, client.IgnoreNotFound(alice.Delete(t.Context(), unnamed.DeepCopy(), client.GracePeriodSeconds(0))))
	}
	if _, err := newPod(t, alice, "misnamed", map[string]string{vmspec.AnnotationVMContainer: "other"}); !apierrors.IsForbidden(err) {
		t.Errorf("a pod that names another container: %v", err)
	}
	if _, err := newPod(t, alice, "named", map[string]string{vmspec.AnnotationVMContainer: "guest"}); err != nil {
		t.Error(err)
	}
	plain := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "plain", Namespace: "default"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example.com/c"}}},
	}
	assert.NilError(t, alice.Create(t.Context(), plain))
	assert.NilError(t, alice.Delete(t.Context(), plain, client.GracePeriodSeconds(0)))
}
