// Package datavolume reads, creates and releases DataVolumes, the objects by which CDI (the
// Containerized Data Importer) fills PVCs, in clusters that have CDI. nodevirt neither
// installs nor serves this kind. The package leaves PVCs without CDI to controller/vm.
package datavolume

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Kind is the kind of DataVolumes.
const Kind = "DataVolume"

// version is the API's group and version.
func version() schema.GroupVersion {
	return schema.GroupVersion{Group: "cdi.kubevirt.io", Version: "v1beta1"}
}

// State is what is known of one DataVolume.
type State struct {
	// Served says that the cluster has CDI's kinds, Found that the object exists.
	Served, Found bool
	// Phase and Progress are CDI's words.
	Phase, Progress string
	// Error says in CDI's words why CDI cannot fill the PVC at the moment, if that is so. CDI tries again.
	Error string
	// Words are CDI's about what it waits for, if that is no error.
	Words string
}

// Filled reports whether the PVC of the DataVolume has its content.
func (s State) Filled() bool { return s.Phase == "Succeeded" }

// Usable reports whether a pod can be created that uses the PVC of the DataVolume. In phase PendingPopulation CDI waits
// for that pod, and fills the PVC before Kubernetes binds it, so that the pod does not run before.
func (s State) Usable() bool { return s.Filled() || s.Phase == "PendingPopulation" }

// Unbound reports whether CDI waits until a pod has Kubernetes bind the PVC. It fills the PVC then.
func (s State) Unbound() bool { return s.Phase == "WaitForFirstConsumer" }

// Failed reports whether CDI gave up.
func (s State) Failed() bool { return s.Phase == "Failed" }

// Client reads, creates and releases DataVolumes. It asks the API server each time: few VMs wait
// for one, and the kind may not be there to be watched.
type Client struct {
	dynamic dynamic.Interface
	cluster kubernetes.Interface
}

// New returns a client of a cluster.
func New(cluster *rest.Config) (*Client, error) {
	d, err := dynamic.NewForConfig(cluster)
	if err != nil {
		return nil, fmt.Errorf("set up the client of DataVolumes: %w", err)
	}
	k, err := kubernetes.NewForConfig(cluster)
	if err != nil {
		return nil, fmt.Errorf("set up the client of access reviews: %w", err)
	}
	return &Client{dynamic: d, cluster: k}, nil
}

func (c *Client) in(namespace string) dynamic.ResourceInterface {
	return c.dynamic.Resource(version().WithResource("datavolumes")).Namespace(namespace)
}

// Get returns the state of a DataVolume. It is no error that there is none.
func (c *Client) Get(ctx context.Context, namespace, name string) (State, error) {
	object, err := c.in(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		// The API server has no path for a kind that it does not serve.
		return State{Served: !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)}, nil
	case err != nil:
		return State{}, fmt.Errorf("read DataVolume %s/%s: %w", namespace, name, err)
	}
	s := State{Served: true, Found: true}
	s.Phase, _, _ = unstructured.NestedString(object.Object, "status", "phase")
	s.Progress, _, _ = unstructured.NestedString(object.Object, "status", "progress")
	s.Error, s.Words = says(object)
	return s, nil
}

// ChangeOwners changes the owners of a DataVolume, unless it is gone.
func (c *Client) ChangeOwners(
	ctx context.Context, namespace, name string, change func([]metav1.OwnerReference) []metav1.OwnerReference,
) error {
	object, err := c.in(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read DataVolume %s/%s: %w", namespace, name, err)
	}
	have := object.GetOwnerReferences()
	next := change(slices.Clone(have))
	if equality.Semantic.DeepEqual(have, next) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": object.GetResourceVersion(), "ownerReferences": next,
	}})
	if err != nil {
		return fmt.Errorf("encode the owners of DataVolume %s/%s: %w", namespace, name, err)
	}
	_, err = c.in(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("change the owners of DataVolume %s/%s: %w", namespace, name, err)
	}
	return nil
}

// DeleteOwned deletes a DataVolume whose controller is an owner, if it exists.
func (c *Client) DeleteOwned(ctx context.Context, namespace, name string, owner metav1.Object) error {
	object, err := c.in(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && !metav1.IsControlledBy(object, owner) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read DataVolume %s/%s: %w", namespace, name, err)
	}
	uid := object.GetUID()
	err = c.in(namespace).Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete DataVolume %s/%s: %w", namespace, name, err)
	}
	return nil
}
