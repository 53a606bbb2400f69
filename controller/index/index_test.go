package index_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/nodevirt/nodevirt/controller/index"
)

// TestHandler: an event requests the objects of its namespace that have the value in the
// index, and none without a value.
func TestHandler(t *testing.T) {
	pod := func(namespace, name, service string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{Subdomain: service},
		}
	}
	cache := fake.NewClientBuilder().
		WithIndex(new(corev1.Pod), "service", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.Subdomain} }).
		WithObjects(pod("a", "one", "web"), pod("a", "two", "mail"), pod("a", "none", ""), pod("b", "one", "web")).Build()
	for name, want := range map[string][]reconcile.Request{
		"web": {{NamespacedName: client.ObjectKey{Namespace: "a", Name: "one"}}},
		"":    nil,
	} {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		h := index.Handler(cache, new(corev1.PodList), "service", client.Object.GetName)
		h.Create(t.Context(), event.CreateEvent{Object: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}}}, queue)
		if queue.Len() != len(want) {
			t.Errorf("%q: %d requests, want %v", name, queue.Len(), want)
		}
		for _, w := range want {
			if got, _ := queue.Get(); got != w {
				t.Errorf("%q: request %v, want %v", name, got, w)
			}
		}
		queue.ShutDown()
	}
}
