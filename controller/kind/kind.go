// Package kind defines the descriptor of an API kind that the controller owns: all
// that other parts need to know about it. It leaves the descriptors themselves to
// the packages of the kinds, and the table of all kinds to package kinds.
package kind

import (
	"context"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/tracing"
)

// Kind describes one API kind.
type Kind struct {
	// Version is the API's group and version, in which objects are stored.
	Version schema.GroupVersion
	// Older is a version with the same fields that the API server serves too; "" for none.
	Older string
	// Object returns a new object, and List a new list of objects.
	Object func() client.Object
	List   func() client.ObjectList
	// Cached says that the controller reads whole objects from its cache. Caches of
	// metadata alone need no entry.
	Cached bool
	// CRD is what the CustomResourceDefinition has beside the schema.
	CRD CRD
	// Access is what the controller may do with objects.
	Access Access
	// Admission decides which objects the cluster accepts.
	Admission admission.Rules
	// Fields are the lists of supported fields in the docs.
	Fields []FieldList
	// SetUp lets a manager run the kind's reconciler; nil for kinds without one.
	SetUp func(context.Context, Cluster) error
}

// Access lists the verbs that the controller needs. What users may do follows from
// the kind's scope: see deploy/kubernetes/users.yaml.
type Access struct {
	// Object, Status and Finalizers are verbs on the resource and its subresources.
	Object, Status, Finalizers []string
}

// FieldList is one list of supported fields in the docs.
type FieldList struct {
	// Name is in the marks around the list.
	Name   string
	Fields fields.Supported
	// Check returns what is wrong with a decoded spec.
	Check func(at *field.Path, tree any) field.ErrorList
}

// Checked returns the check of a decoding function.
func Checked[T any](decode func(*field.Path, any) (T, field.ErrorList)) func(*field.Path, any) field.ErrorList {
	return func(at *field.Path, tree any) field.ErrorList {
		_, problems := decode(at, tree)
		return problems
	}
}

// Cluster is what a reconciler is set up with.
type Cluster struct {
	Manager manager.Manager
	// Uncached reads and writes objects that no cache holds: the manager's client
	// would wait for them in the cache.
	Uncached client.Client
	// RuntimeClass is the name of the RuntimeClass of instances' pods.
	RuntimeClass string
	// StubImage is the image of VMs whose volumes have none; empty refuses such VMs.
	StubImage string
	// Holder is the image of attachment pods.
	Holder pod.Holder
	// ExportImage is the image of the pods that serve exports; "" if the controller knows none.
	ExportImage string
	// ExportProxyNamespace is the namespace of the export proxy; "" if the controller knows none.
	ExportProxyNamespace string
	// Config is the cluster's configuration, read from the manager's cache.
	Config config.Source
	// Version is what the controller says of itself.
	Version string
	// NetworkDisks has nodes' QEMU open PVCs on iSCSI and RBD over the network.
	NetworkDisks bool
	// Tracing traces reconciles; nil for none.
	Tracing *tracing.Tracing
	// Events returns the recorder of a controller's events.
	Events func(controller string) events.EventRecorder
	Now    func() time.Time
}

// Name returns the kind's name, such as VirtualMachine.
func (k Kind) Name() string { return reflect.TypeOf(k.Object()).Elem().Name() }

// Resource returns the plural in lower case, such as virtualmachines.
func (k Kind) Resource() string {
	plural, _ := meta.UnsafeGuessKindToResource(k.Version.WithKind(k.Name()))
	return plural.Resource
}

// Types returns the import path of the package with the kind's types.
func (k Kind) Types() string { return reflect.TypeOf(k.Object()).Elem().PkgPath() }
