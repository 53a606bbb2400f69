package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// TestTrimPod: the cache keeps the annotation that the reconciler removes when a guest has moved.
func TestTrimPod(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		pod.AnnotationEvictionInProgress: "true", "other": "long",
	}}}
	trimPod(p)
	if _, has := p.Annotations[pod.AnnotationEvictionInProgress]; !has {
		t.Error("the cache has no mark of an eviction in progress")
	}
	if _, has := p.Annotations["other"]; has {
		t.Error("the cache has a foreign annotation")
	}
}
