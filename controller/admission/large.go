package admission

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/internal/bounds"
)

// labelLarge marks the large objects of kinds that the controller keeps in memory, so that a review can count those of a
// namespace without reading them. The webhook decides on the label alone: an author can neither add nor remove it.
const labelLarge = "nodevirt.io/large"

// large reports whether the controller's cache would hold more than [bounds.LargeObject] bytes of an object. It drops which
// managers have which fields, and the manifest that kubectl keeps in an annotation.
func large(text []byte, object Tree) bool {
	if len(text) <= bounds.LargeObject {
		return false
	}
	meta, _ := object["metadata"].(Tree)
	annotations, _ := meta["annotations"].(Tree)
	for _, dropped := range []any{meta["managedFields"], annotations[corev1.LastAppliedConfigAnnotation]} {
		if dropped == nil {
			continue
		}
		part, err := json.Marshal(dropped)
		if err == nil {
			text = text[:max(0, len(text)-len(part))]
		}
	}
	return len(text) > bounds.LargeObject
}

// markLarge sets or removes the label, and reports whether it changed the object.
func (r *Review) markLarge() (changed bool) {
	if r.rules.Cached.Empty() {
		return false
	}
	meta, _ := r.Object["metadata"].(Tree)
	labels, _ := meta["labels"].(Tree)
	has, is := labels[labelLarge] != nil, large(r.request.Object.Raw, r.Object)
	switch {
	case is && labels[labelLarge] != "true":
		Child(Child(r.Object, "metadata"), "labels")[labelLarge] = "true"
	case has && !is:
		delete(labels, labelLarge)
	default:
		return false
	}
	return true
}

// checkRoom refuses an object that becomes large if its namespace has as many large ones of its kind as the controller keeps.
func (w Webhooks) checkRoom(ctx context.Context, r *Review) (field.ErrorList, error) {
	if r.rules.Cached.Empty() || !large(r.request.Object.Raw, r.Object) || r.Old != nil && large(r.request.OldObject.Raw, r.Old) {
		return nil, nil
	}
	kind := r.request.Kind.Kind
	list := new(metav1.PartialObjectMetadataList)
	list.SetGroupVersionKind(r.rules.Cached.WithKind(kind + "List"))
	err := w.Live.List(ctx, list, client.InNamespace(r.request.Namespace), client.MatchingLabels{labelLarge: "true"}, client.Limit(bounds.LargeObjects))
	if err != nil {
		return nil, fmt.Errorf("list large objects of kind %s in %s: %w", kind, r.request.Namespace, err)
	}
	if len(list.Items) < bounds.LargeObjects {
		return nil, nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("metadata", "namespace"), fmt.Sprintf(
		"the namespace has %d objects of kind %s that are larger than %d KiB; move large values, such as cloud-init user data, "+
			"to Secrets and refer to these, or delete some", len(list.Items), kind, bounds.LargeObject>>10))}, nil
}
