package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// The kinds of objects that are watched.
var (
	pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	vmis = schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachineinstances"}
)

// event is something that happens once to an object, known by a name that it shares with what it is for: a
// VM's pod has its instance's, but an attachment pod its own.
type event struct{ name, what string }

// What happens to objects.
const (
	podMade      = "pod made"
	podScheduled = "pod scheduled"
	podSandbox   = "pod's sandbox made"
	podRunning   = "pod Running"
	podGone      = "pod gone"
	vmiRunning   = "VMI Running"
	vmiGone      = "VMI gone"
)

// volumeReady and volumeGone are events of an instance with a volume that it has got.
func volumeReady(volume string) string { return "volume " + volume + " Ready" }
func volumeGone(volume string) string  { return "volume " + volume + " gone" }

// watcher notes when events were first seen.
type watcher struct {
	mu      sync.Mutex
	seen    map[event]time.Time
	address map[string]string // of pods
	volumes map[string]bool   // those that the one instance with plugged volumes had; only its watch uses it
	changed chan struct{}     // closed and replaced at each change
}

func newWatcher() *watcher {
	return &watcher{seen: map[event]time.Time{}, address: map[string]string{}, volumes: map[string]bool{}, changed: make(chan struct{})}
}

// follow takes a watch's events until it ends.
func (w *watcher) follow(ctx context.Context, c dynamic.Interface, of schema.GroupVersionResource) error {
	stream, err := c.Resource(of).Namespace(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watch %s: %w", of.Resource, err)
	}
	go func() {
		defer stream.Stop()
		for e := range stream.ResultChan() {
			if o, ok := e.Object.(*unstructured.Unstructured); ok {
				w.note(of, e.Type, o, time.Now())
			}
		}
	}()
	return nil
}

func (w *watcher) note(of schema.GroupVersionResource, kind watch.EventType, o *unstructured.Unstructured, now time.Time) {
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	var what []string
	name := o.GetName()
	switch {
	case of == vmis && kind == watch.Deleted:
		what = append(what, vmiGone)
	case of == vmis && phase == "Running":
		what = append(what, vmiRunning)
		what = append(what, w.volumeEvents(o)...)
	case of == pods && o.GetLabels()["kubevirt.io"] == "hotplug-disk": // known by its own name
		what = podEvents(kind, phase, o)
	case of == pods:
		if vm := o.GetLabels()["vm.kubevirt.io/name"]; vm != "" {
			name = vm
		}
		what = podEvents(kind, phase, o)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range what {
		if _, ok := w.seen[event{name, x}]; !ok {
			w.seen[event{name, x}] = now
		}
	}
	if ip, _, _ := unstructured.NestedString(o.Object, "status", "podIP"); ip != "" {
		w.address[name] = ip
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

// volumeEvents are those of an instance's volumes.
func (w *watcher) volumeEvents(o *unstructured.Unstructured) (what []string) {
	volumes, _, _ := unstructured.NestedSlice(o.Object, "status", "volumeStatus")
	has := map[string]bool{}
	for _, v := range volumes {
		if v, ok := v.(map[string]any); ok {
			name := fmt.Sprint(v["name"])
			has[name] = true
			if v["phase"] == "Ready" {
				what = append(what, volumeReady(name))
				w.volumes[name] = true
			}
		}
	}
	for name := range w.volumes {
		if !has[name] {
			what = append(what, volumeGone(name))
		}
	}
	return what
}

func podEvents(kind watch.EventType, phase string, o *unstructured.Unstructured) []string {
	if kind == watch.Deleted {
		return []string{podGone}
	}
	what := []string{podMade}
	if node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName"); node != "" {
		what = append(what, podScheduled)
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == "PodReadyToStartContainers" && c["status"] == "True" {
			what = append(what, podSandbox)
		}
	}
	if phase == "Running" {
		what = append(what, podRunning)
	}
	return what
}

// wait returns when an event was seen, now or later.
func (w *watcher) wait(ctx context.Context, name, what string) (time.Time, error) {
	for {
		w.mu.Lock()
		at, ok := w.seen[event{name, what}]
		changed := w.changed
		w.mu.Unlock()
		if ok {
			return at, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for %s of %s: %w", what, name, context.Cause(ctx))
		}
	}
}

// ip is a pod's address, once it was seen.
func (w *watcher) ip(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.address[name]
}
