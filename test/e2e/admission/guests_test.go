package admission

import (
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// TestGuestsFinalizer: a pod stays until the controller knows of its guest's end,
// whatever an administrator does.
func TestGuestsFinalizer(t *testing.T) {
	alice, us := userClient(t, "alice"), userClient(t, account)
	theirs, err := newPod(t, alice, "no-guest", nil)
	assert.NilError(t, err)
	ours := guestsPod()
	if err := alice.Create(t.Context(), ours.DeepCopy()); !refusedGuest(err, "only nodevirt's controller sets") {
		t.Errorf("created by another: %v", err)
	}
	assert.NilError(t, us.Create(t.Context(), ours))
	merge := func(text string) client.Patch { return client.RawPatch("application/merge-patch+json", []byte(text)) }
	const (
		none  = `{"metadata": {"finalizers": null}}`
		other = `{"metadata": {"finalizers": ["example.com/other"]}}`
		owned = `{"metadata": {"ownerReferences": [
			{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "guest", "uid": %q, "controller": true}]}}`
	)
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"set":            {alice.Patch(t.Context(), theirs.DeepCopy(), merge(`{"metadata": {"finalizers": ["nodevirt.io/guest"]}}`)), "only nodevirt's controller sets"},
		"take off":       {alice.Patch(t.Context(), ours.DeepCopy(), merge(none)), "takes nodevirt.io/guest off when the guest has ended"},
		"replace":        {alice.Patch(t.Context(), ours.DeepCopy(), merge(other)), "takes nodevirt.io/guest off"},
		"by status":      {alice.Status().Patch(t.Context(), ours.DeepCopy(), merge(none)), "takes nodevirt.io/guest off"},
		"give away":      {alice.Patch(t.Context(), ours.DeepCopy(), merge(`{"metadata": {"labels": {"kubevirt.io/created-by": "u2"}}}`)), "kubevirt.io/created-by"},
		"unlabel":        {alice.Patch(t.Context(), ours.DeepCopy(), merge(`{"metadata": {"labels": {"kubevirt.io/created-by": null}}}`)), "kubevirt.io/created-by"},
		"hide":           {alice.Patch(t.Context(), ours.DeepCopy(), merge(`{"metadata": {"labels": {"kubevirt.io": null}}}`)), "changes kubevirt.io, "},
		"strip of all":   {alice.Patch(t.Context(), ours.DeepCopy(), merge(`{"metadata": {"labels": null}}`)), "kubevirt.io/created-by"},
		"another's":      {alice.Patch(t.Context(), ours.DeepCopy(), merge(fmt.Sprintf(owned, "u2"))), "gets no other controller"},
		"another's name": {alice.Patch(t.Context(), ours.DeepCopy(), merge(`{"metadata": {"annotations": {"kubevirt.io/domain": "x"}}}`)), "kubevirt.io/domain"},
	} {
		if !refusedGuest(tt.err, tt.want) {
			t.Errorf("%s: %v", name, tt.err)
		}
	}
	for name, err := range map[string]error{
		"a label":          alice.Patch(t.Context(), ours.DeepCopy(), merge(`{"metadata": {"labels": {"a": "b"}}}`)),
		"a finalizer more": alice.Patch(t.Context(), ours.DeepCopy(), merge(`{"metadata": {"finalizers": ["nodevirt.io/guest", "example.com/other"]}}`)),
		"back again":       alice.Patch(t.Context(), ours.DeepCopy(), merge(`{"metadata": {"finalizers": ["nodevirt.io/guest"]}}`)),
		"its own":          alice.Patch(t.Context(), ours.DeepCopy(), merge(fmt.Sprintf(owned, "u1"))),
		"nobody's":         alice.Patch(t.Context(), ours.DeepCopy(), merge(`{"metadata": {"ownerReferences": null}}`)),
		"a status":         alice.Status().Patch(t.Context(), ours.DeepCopy(), merge(`{"status": {"message": "x"}}`)),
		"by force":         alice.Delete(t.Context(), ours.DeepCopy(), client.GracePeriodSeconds(0)),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := alice.Patch(t.Context(), ours.DeepCopy(), merge(none)); !refusedGuest(err, "takes nodevirt.io/guest off") {
		t.Errorf("when it is deleted: %v", err)
	}
	if err := us.Patch(t.Context(), ours, merge(none)); err != nil {
		t.Errorf("by the controller: %v", err)
	}
}

// guestsPod returns a pod as the controller makes them, except for the label's value: the controller
// that runs here would recognize the value, and delete the pod, since it has no owner.
func guestsPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "virt-launcher-guest", Namespace: "default", Finalizers: []string{pod.Finalizer},
			Labels:      map[string]string{kubevirt.AppLabel: "guest", kubevirt.CreatedByLabel: "u1"},
			Annotations: map[string]string{kubevirt.DomainAnnotation: "guest"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: kubevirt.GroupVersion.String(), Kind: "VirtualMachineInstance", Name: "guest", UID: "u1", Controller: new(true),
			}},
		},
		Spec: corev1.PodSpec{RuntimeClassName: new("vm"), Containers: []corev1.Container{{Name: pod.Container, Image: "registry.example.com/guest"}}},
	}
}

func refusedGuest(err error, why string) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), why)
}
