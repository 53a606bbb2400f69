package admission

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/internal/bounds"
)

// kept returns how many bytes of an object's JSON the controller's cache holds because of its author. The cache drops which
// managers have which fields, and the manifest that kubectl keeps in an annotation. The controller writes the status.
func kept(text []byte, object Tree) int {
	n := len(text)
	if n <= bounds.SmallObject {
		return n
	}
	meta, _ := object["metadata"].(Tree)
	annotations, _ := meta["annotations"].(Tree)
	for _, dropped := range []any{meta["managedFields"], annotations[corev1.LastAppliedConfigAnnotation], object["status"]} {
		if dropped == nil {
			continue
		}
		if part, err := json.Marshal(dropped); err == nil {
			n -= len(part)
		}
	}
	return n
}

// Controller returns the user that the controller of a namespace is. The policies in deploy/ have the same name.
func Controller(namespace string) string {
	return serviceaccount.MakeUsername(namespace, "nodevirt-controller")
}

// alwaysHasRoom reports whether an object is within the bound already: the controller's updates add little, and must not fail
// midway, and each VM, which was admitted, has one instance.
func (w Webhooks) alwaysHasRoom(r *Review) bool {
	if !w.byController(r) {
		return false
	}
	owner := metav1.GetControllerOf(&r.Meta)
	return r.Old != nil || r.rules.Instance && owner != nil && owner.Kind == kubevirt.VirtualMachineGroupVersionKind.Kind
}

func (w Webhooks) byController(r *Review) bool {
	return w.Controller != "" && r.request.UserInfo.Username == w.Controller
}

// checkRoom refuses an object that is larger than its namespace's share of the controller's memory has room for. An object
// that exists may stay as large as it is. Nothing counts the bytes of a namespace: each object may have the share divided
// by the number of objects, so that all together have a small multiple of the share. The share is larger for what the
// controller copies, such as VMs into snapshots, and for small additions to what exists.
func (w Webhooks) checkRoom(ctx context.Context, r *Review) (field.ErrorList, error) {
	if r.rules.Cached.Empty() || w.alwaysHasRoom(r) {
		return nil, nil
	}
	size := kept(r.request.Object.Raw, r.Object)
	if size <= bounds.SmallObject {
		return nil, nil
	}
	share := bounds.KindBytes
	if w.byController(r) {
		share = bounds.ControllerKindBytes
	}
	if r.Old != nil {
		switch before := kept(r.request.OldObject.Raw, r.Old); {
		case size <= before:
			return nil, nil
		case size <= before+bounds.Growth:
			share = bounds.ControllerKindBytes
		}
	}
	n, err := w.count(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.Old == nil {
		n++
	}
	room := max(share/max(n, 1), bounds.SmallObject)
	if size <= room {
		return nil, nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("metadata", "namespace"), fmt.Sprintf(
		"among %d objects of kind %s in the namespace, this one may have %d KiB, and has %d KiB; move large values, such as "+
			"cloud-init user data, to Secrets and refer to these, or delete objects", n, r.request.Kind.Kind, room>>10, (size+1<<10-1)>>10))}, nil
}

// count returns the number of objects of a review's kind in its namespace.
func (w Webhooks) count(ctx context.Context, r *Review) (int, error) {
	list := new(metav1.PartialObjectMetadataList)
	list.SetGroupVersionKind(r.rules.Cached.WithKind(r.request.Kind.Kind + "List"))
	if err := w.Live.List(ctx, list, client.InNamespace(r.request.Namespace), client.Limit(1)); err != nil {
		return 0, fmt.Errorf("count the objects of kind %s in %s: %w", r.request.Kind.Kind, r.request.Namespace, err)
	}
	n := len(list.Items)
	switch {
	case list.RemainingItemCount != nil:
		n += int(*list.RemainingItemCount)
	case list.Continue != "":
		return 0, fmt.Errorf("count the objects of kind %s in %s: the API server does not say how many follow", r.request.Kind.Kind, r.request.Namespace)
	}
	return n, nil
}
