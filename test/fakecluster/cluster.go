// Package fakecluster has an API server in memory for unit tests of reconcilers, on
// top of controller-runtime's fake client. It adds what that client leaves out: UIDs,
// the preconditions of deletions, a cache that can be behind, a log of writes and
// failures of choice.
package fakecluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodevirt/nodevirt/controller/foreign"
)

// Options are what a cluster is made of.
type Options struct {
	// Types add the kinds of objects to the cluster's scheme.
	Types []func(*runtime.Scheme) error
	// Status are objects of the kinds with a subresource status.
	Status []client.Object
	// Index adds field indexes.
	Index func(*fake.ClientBuilder) *fake.ClientBuilder
}

// Cluster is an API server in memory.
type Cluster struct {
	// Client reads and writes all objects. Its writes are not in the log and never
	// fail: it is the test's own, as user, scheduler and kubelet.
	client.Client
	// Recorder collects events: see [Cluster.Events].
	Recorder *events.FakeRecorder
	// Hidden says which objects the cache does not have; nil hides none.
	Hidden func(client.Object) bool
	// Behind changes an object that is read from the cache to what it was; nil changes none.
	Behind func(client.Object)
	// Fail returns the error of a write; nil lets all succeed.
	Fail func(verb string, o client.Object) error

	mu     sync.Mutex
	writes []string
	uids   int
}

// New returns an empty cluster.
func New(t testing.TB, o Options) *Cluster {
	t.Helper()
	c := &Cluster{Recorder: events.NewFakeRecorder(1000)}
	scheme := runtime.NewScheme()
	for _, add := range o.Types {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	// The tracker of managed fields, which is the default, cannot encode some of
	// KubeVirt's types.
	tracker := clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker).WithStatusSubresource(o.Status...).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: c.create, Delete: c.delete,
			Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, how ...client.GetOption) error {
				if err := known(o, scheme); err != nil {
					return err
				}
				return w.Get(ctx, key, o, how...)
			},
			List: func(ctx context.Context, w client.WithWatch, l client.ObjectList, how ...client.ListOption) error {
				if err := known(l, scheme); err != nil {
					return err
				}
				return list(ctx, w, l, how...)
			},
		})
	if o.Index != nil {
		builder = o.Index(builder)
	}
	c.Client = builder.Build()
	return c
}

// known returns an error if the controller's client could not read an object or a list: a client without a mapper, as
// those of tests are, guesses the resources of kinds.
func known(o runtime.Object, scheme *runtime.Scheme) error {
	kind, err := apiutil.GVKForObject(o, scheme)
	if err != nil {
		return err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	if !scheme.Recognizes(kind) && !foreign.Has(kind) {
		return &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
	}
	return nil
}

// create gives an object its UID. It refuses a revision that no collector could take from its owner: the API server
// sorts the keys of its data at the next change, and takes that for a change of the data.
func (c *Cluster) create(ctx context.Context, w client.WithWatch, o client.Object, how ...client.CreateOption) error {
	if revision, is := o.(*appsv1.ControllerRevision); is {
		if err := checkSorted(revision.Data.Raw); err != nil {
			return fmt.Errorf("ControllerRevision %s: %w", o.GetName(), err)
		}
	}
	if o.GetUID() == "" {
		c.mu.Lock()
		c.uids++
		o.SetUID(types.UID("uid-" + strconv.Itoa(c.uids)))
		c.mu.Unlock()
	}
	return w.Create(ctx, o, how...)
}

// delete honours the preconditions.
func (c *Cluster) delete(ctx context.Context, w client.WithWatch, o client.Object, how ...client.DeleteOption) error {
	var options client.DeleteOptions
	options.ApplyOptions(how)
	if p := options.Preconditions; p != nil {
		have := o.DeepCopyObject().(client.Object)
		if err := w.Get(ctx, client.ObjectKeyFromObject(o), have); err != nil {
			return err
		}
		if p.UID != nil && have.GetUID() != *p.UID || p.ResourceVersion != nil && have.GetResourceVersion() != *p.ResourceVersion {
			return apierrors.NewConflict(schema.GroupResource{}, o.GetName(),
				fmt.Errorf("the UID is %s, the version %s", have.GetUID(), have.GetResourceVersion()))
		}
	}
	return w.Delete(ctx, o, how...)
}

// Cached returns the client of the reconciler under test: it reads from the cache,
// and its writes are logged.
func (c *Cluster) Cached() client.Client {
	base := c.Client.(client.WithWatch)
	return interceptor.NewClient(base, interceptor.Funcs{
		Get: func(ctx context.Context, w client.WithWatch, key client.ObjectKey, o client.Object, how ...client.GetOption) error {
			if err := w.Get(ctx, key, o, how...); err != nil {
				return err
			}
			if c.Hidden != nil && c.Hidden(o) {
				return apierrors.NewNotFound(schema.GroupResource{Resource: c.kind(o)}, key.Name)
			}
			if c.Behind != nil {
				c.Behind(o)
			}
			return nil
		},
		Create: func(ctx context.Context, w client.WithWatch, o client.Object, how ...client.CreateOption) error {
			return c.write("create", o, func() error { return w.Create(ctx, o, how...) })
		},
		Delete: func(ctx context.Context, w client.WithWatch, o client.Object, how ...client.DeleteOption) error {
			return c.write("delete", o, func() error { return w.Delete(ctx, o, how...) })
		},
		Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, how ...client.PatchOption) error {
			return c.write("patch", o, func() error { return w.Patch(ctx, o, p, how...) })
		},
		SubResourcePatch: func(
			ctx context.Context, w client.Client, sub string, o client.Object, p client.Patch, how ...client.SubResourcePatchOption,
		) error {
			return c.write("patch "+sub+" of", o, func() error { return w.SubResource(sub).Patch(ctx, o, p, how...) })
		},
	})
}

func (c *Cluster) write(verb string, o client.Object, do func() error) error {
	if c.Fail != nil {
		if err := c.Fail(verb, o); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes = append(c.writes, verb+" "+c.kind(o))
	return nil
}

func (c *Cluster) kind(o client.Object) string {
	gvk, err := apiutil.GVKForObject(o, c.Scheme())
	if err != nil {
		return fmt.Sprintf("%T", o)
	}
	return gvk.Kind
}

// Writes returns what the reconciler wrote since the last call, such as "create Pod",
// with commas between.
func (c *Cluster) Writes() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := strings.Join(c.writes, ", ")
	c.writes = nil
	return all
}

// Events returns the events since the last call, one a line: type, reason, text.
func (c *Cluster) Events() string {
	var all []string
	for {
		select {
		case e := <-c.Recorder.Events:
			all = append(all, e)
		default:
			return strings.Join(all, "\n")
		}
	}
}

// Add creates objects with the status that they have.
func (c *Cluster) Add(t testing.TB, all ...client.Object) {
	t.Helper()
	for _, o := range all {
		status := o.DeepCopyObject().(client.Object)
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatalf("create %s: %v", o.GetName(), err)
		}
		status.SetResourceVersion(o.GetResourceVersion())
		status.SetUID(o.GetUID())
		if err := c.Status().Update(t.Context(), status); err != nil && !apierrors.IsNotFound(err) {
			t.Fatalf("write status of %s: %v", o.GetName(), err)
		}
	}
}

// Change changes an object as it is now, its status too.
func Change[T client.Object](t testing.TB, c *Cluster, o T, change func(T)) {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatalf("read %s: %v", o.GetName(), err)
	}
	change(o)
	status := o.DeepCopyObject().(client.Object)
	if err := c.Update(t.Context(), o); err != nil {
		t.Fatalf("update %s: %v", o.GetName(), err)
	}
	status.SetResourceVersion(o.GetResourceVersion())
	if err := c.Status().Update(t.Context(), status); err != nil && !apierrors.IsNotFound(err) {
		t.Fatalf("write status of %s: %v", o.GetName(), err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil && !apierrors.IsNotFound(err) {
		t.Fatalf("read %s: %v", o.GetName(), err)
	}
}

// Exists reads an object and reports whether it is there.
func (c *Cluster) Exists(t testing.TB, o client.Object) bool {
	t.Helper()
	err := c.Get(t.Context(), client.ObjectKeyFromObject(o), o)
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatalf("read %s: %v", o.GetName(), err)
	}
	return err == nil
}

// checkSorted reports data whose keys are in another order than that of their names.
func checkSorted(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var content any
	if err := decoder.Decode(&content); err != nil {
		return err
	}
	sorted, err := json.Marshal(content)
	if err != nil {
		return err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, data); err != nil {
		return err
	}
	if !bytes.Equal(sorted, compact.Bytes()) {
		return errors.New("the keys of its data are not sorted")
	}
	return nil
}

// ClaimVolume returns a volume of an instance on a PVC.
func ClaimVolume(name, pvc string) kubevirt.Volume {
	v := kubevirt.Volume{Name: name}
	v.PersistentVolumeClaim = &kubevirt.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: pvc},
	}
	return v
}

// DumpVolume returns a volume for dumps of an instance's memory to a PVC.
func DumpVolume(name, pvc string) kubevirt.Volume {
	v := kubevirt.Volume{Name: name}
	v.MemoryDump = new(kubevirt.MemoryDumpVolumeSource)
	v.MemoryDump.ClaimName = pvc
	return v
}
