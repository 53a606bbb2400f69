// Package cluster reads and labels the Node object for the installer, and reports events on it.
//
// It owns the calls to the API server. It leaves to package agent what labels mean.
package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

const (
	// requestTime bounds one request.
	requestTime = 15 * time.Second
	// maxMessage is the API server's bound of an event's message, in bytes.
	maxMessage = 1024
)

// Node is a Node object.
type Node struct {
	name    string
	client  metadata.Interface
	events  record.EventBroadcaster
	reports record.EventRecorder

	mu      sync.Mutex
	labels  map[string]string
	changed chan struct{}
}

// Watch returns the Node of a name when its labels are known, and follows them until ctx ends.
func Watch(ctx context.Context, config *rest.Config, name string) (*Node, error) {
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	core, err := typedv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	n := &Node{name: name, client: client, changed: make(chan struct{})}
	n.events = record.NewBroadcaster(record.WithContext(ctx))
	n.events.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: core.Events("")})
	n.reports = n.events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "nodevirt-installer", Host: name})

	informer := metadatainformer.NewFilteredMetadataInformer(client, corev1.SchemeGroupVersion.WithResource("nodes"), "", 0, cache.Indexers{},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
		}).Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    n.set,
		UpdateFunc: func(_, now any) { n.set(now) },
	}); err != nil {
		return nil, err
	}
	first := n.changed // closed by the first labels
	go informer.RunWithContext(ctx)
	select {
	case <-first:
		return n, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("read the labels of node %s: %w", name, context.Cause(ctx))
	}
}

// set stores the labels of an object.
func (n *Node) set(o any) {
	m, ok := o.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.labels = m.GetLabels()
	close(n.changed)
	n.changed = make(chan struct{})
}

// Labels returns the last labels, and a channel that is closed when the object has changed since.
func (n *Node) Labels() (labels map[string]string, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.labels, n.changed
}

// SetLabel sets a label, or removes it if value is nil.
func (n *Node) SetLabel(ctx context.Context, name string, value *string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]*string{name: value}}})
	if err != nil {
		return err
	}
	nodes := n.client.Resource(corev1.SchemeGroupVersion.WithResource("nodes"))
	if _, err := nodes.Patch(ctx, n.name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("label node %s: %w", n.name, err)
	}
	return nil
}

// Event reports to administrators; kubectl describe node shows it. Failed events are warnings.
func (n *Node) Event(failed bool, reason, message string) {
	kind := corev1.EventTypeNormal
	if failed {
		kind = corev1.EventTypeWarning
	}
	if len(message) > maxMessage {
		message = message[:maxMessage-len("…")] + "…"
	}
	// Kubelets, too, name nodes in place of their UIDs.
	ref := &corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: n.name, UID: types.UID(n.name)}
	n.reports.Event(ref, kind, reason, message)
}

// Close sends no more events.
func (n *Node) Close() { n.events.Shutdown() }
