// Package volumesnapshot reads, creates and deletes VolumeSnapshots, the objects by which CSI
// drivers take snapshots of PVCs, in clusters that serve the kind. nodevirt neither installs
// nor serves it. The package leaves which PVCs belong together to controller/snapshot.
package volumesnapshot

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/nodevirt/nodevirt/internal/bounds"
)

// Group is the API group of VolumeSnapshots, Kind their kind.
const (
	Group = "snapshot.storage.k8s.io"
	Kind  = "VolumeSnapshot"
)

// annotationDefault marks the class to use of several ones of a driver.
const annotationDefault = "snapshot.storage.kubernetes.io/is-default-class"

func version() schema.GroupVersion { return schema.GroupVersion{Group: Group, Version: "v1"} }

// Snapshot is what is known of one VolumeSnapshot.
type Snapshot struct {
	Name string
	UID  types.UID
	// Deleted says that it is being deleted.
	Deleted bool
	// CreationTime is when the driver took it; nil before.
	CreationTime *metav1.Time
	// ReadyToUse says that PVCs can be restored from it; nil if unknown.
	ReadyToUse *bool
	// Error is the driver's last one, "" for none; ErrorTime is its time, if any.
	Error     string
	ErrorTime *metav1.Time
	// RestoreSize is the least size of a PVC that is restored from it; "" if unknown.
	RestoreSize string
}

// PVCSpec returns the spec of a PVC with the VolumeSnapshot's content, which that of another PVC has
// been. The PVC is at least as large as the content needs.
func (s Snapshot) PVCSpec(was corev1.PersistentVolumeClaimSpec) corev1.PersistentVolumeClaimSpec {
	group := Group
	made := corev1.PersistentVolumeClaimSpec{
		AccessModes: was.AccessModes, Resources: *was.Resources.DeepCopy(), StorageClassName: was.StorageClassName,
		VolumeMode: was.VolumeMode, DataSource: &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: Kind, Name: s.Name},
	}
	if least, err := resource.ParseQuantity(s.RestoreSize); err == nil && made.Resources.Requests.Storage().Cmp(least) < 0 {
		made.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: least}
	}
	return made
}

// Class is a VolumeSnapshotClass.
type Class struct {
	Name, Driver string
	// Default says that an administrator prefers the class to others of its driver.
	Default bool
}

// Client reads, creates and deletes VolumeSnapshots. It asks the API server each time: the
// kind may not be there to be watched.
type Client struct{ dynamic dynamic.Interface }

// New returns a client of a cluster.
func New(cluster *rest.Config) (*Client, error) {
	d, err := dynamic.NewForConfig(cluster)
	if err != nil {
		return nil, fmt.Errorf("set up the client of VolumeSnapshots: %w", err)
	}
	return &Client{d}, nil
}

func (c *Client) in(namespace string) dynamic.ResourceInterface {
	return c.dynamic.Resource(version().WithResource("volumesnapshots")).Namespace(namespace)
}

// Classes returns the cluster's VolumeSnapshotClasses. If the cluster does not serve the
// kind, served is false.
func (c *Client) Classes(ctx context.Context) (all []Class, served bool, err error) {
	list, err := c.dynamic.Resource(version().WithResource("volumesnapshotclasses")).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("list VolumeSnapshotClasses: %w", err)
	}
	for i := range list.Items {
		o := &list.Items[i]
		driver, _, _ := unstructured.NestedString(o.Object, "driver")
		all = append(all, Class{Name: o.GetName(), Driver: driver, Default: o.GetAnnotations()[annotationDefault] == "true"})
	}
	return all, true, nil
}

// ClassOf returns which of some classes takes snapshots of a StorageClass's PVCs; "" for none.
func ClassOf(classes []Class, of *storagev1.StorageClass) (string, error) {
	name, matches := "", 0
	for _, c := range classes {
		switch {
		case c.Driver != of.Provisioner:
		case c.Default:
			return c.Name, nil
		default:
			name = c.Name
			matches++
		}
	}
	if matches > 1 {
		return "", fmt.Errorf("%d VolumeSnapshotClasses match StorageClass %s: mark one as default", matches, of.Name)
	}
	return name, nil
}

// listed is how many VolumeSnapshots are read at a time.
const listed = 64

// List returns the VolumeSnapshots of a namespace with labels, by their names. Users can make more with the same labels: beyond
// [bounds.Others] there is an error.
func (c *Client) List(ctx context.Context, namespace string, with map[string]string) (map[string]Snapshot, error) {
	all := map[string]Snapshot{}
	for next := ""; ; {
		page, err := c.in(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(with).String(), Limit: listed, Continue: next})
		if err != nil {
			return nil, fmt.Errorf("list VolumeSnapshots in %s: %w", namespace, err)
		}
		for i := range page.Items {
			all[page.Items[i].GetName()] = decode(&page.Items[i])
		}
		if next = page.GetContinue(); next == "" {
			return all, nil
		}
		if len(all) >= bounds.Others {
			return nil, fmt.Errorf("list VolumeSnapshots in %s: more than %d have the labels %v: delete some", namespace, bounds.Others, with)
		}
	}
}

// Get returns a VolumeSnapshot; nil if there is none.
func (c *Client) Get(ctx context.Context, namespace, name string) (*Snapshot, error) {
	o, err := c.in(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read VolumeSnapshot %s/%s: %w", namespace, name, err)
	}
	s := decode(o)
	return &s, nil
}

func decode(o *unstructured.Unstructured) Snapshot {
	s := Snapshot{Name: o.GetName(), UID: o.GetUID(), Deleted: o.GetDeletionTimestamp() != nil}
	s.CreationTime = timeAt(o, "status", "creationTime")
	if ready, found, err := unstructured.NestedBool(o.Object, "status", "readyToUse"); found && err == nil {
		s.ReadyToUse = &ready
	}
	s.Error, _, _ = unstructured.NestedString(o.Object, "status", "error", "message")
	s.ErrorTime = timeAt(o, "status", "error", "time")
	s.RestoreSize, _, _ = unstructured.NestedString(o.Object, "status", "restoreSize")
	return s
}

func timeAt(o *unstructured.Unstructured, path ...string) *metav1.Time {
	text, _, _ := unstructured.NestedString(o.Object, path...)
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return nil
	}
	at := metav1.NewTime(t)
	return &at
}

// Create has a driver take a snapshot of a PVC in the namespace of meta, unless the
// VolumeSnapshot exists.
func (c *Client) Create(ctx context.Context, meta metav1.ObjectMeta, pvc, class string) error {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"source":                  map[string]any{"persistentVolumeClaimName": pvc},
		"volumeSnapshotClassName": class,
	}}}
	o.SetGroupVersionKind(version().WithKind(Kind))
	o.SetName(meta.Name)
	o.SetNamespace(meta.Namespace)
	o.SetLabels(meta.Labels)
	o.SetOwnerReferences(meta.OwnerReferences)
	_, err := c.in(meta.Namespace).Create(ctx, o, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create VolumeSnapshot %s/%s: %w", meta.Namespace, meta.Name, err)
	}
	return nil
}

// Delete deletes a VolumeSnapshot, and no later one of its name.
func (c *Client) Delete(ctx context.Context, namespace string, s Snapshot) error {
	err := c.in(namespace).Delete(ctx, s.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete VolumeSnapshot %s/%s: %w", namespace, s.Name, err)
	}
	return nil
}
