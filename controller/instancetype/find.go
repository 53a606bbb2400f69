package instancetype

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	kubevirt "kubevirt.io/api/core/v1"
	groups "kubevirt.io/api/instancetype"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/decode"
)

// MissingError says that an object does not exist yet. The VM can start once it
// exists.
type MissingError struct {
	// Reason is KubeVirt's reason of a condition.
	Reason string
	// Revision says that one of the VM's revisions is missing, which no controller
	// watches, and not an instance type or a preference.
	Revision bool
	err      error
}

func (e *MissingError) Error() string { return e.err.Error() }

func (e *MissingError) Unwrap() error { return e.err }

// Find returns the types that a VM's instances are created with: those of its
// revisions, or the objects as they are now if it has no revisions yet. The reader
// must not be behind. The error is a *MissingError if an object does not exist.
func Find(ctx context.Context, r client.Reader, vm *kubevirt.VirtualMachine) (Types, error) {
	var types Types
	for _, m := range matchers(vm) {
		if _, err := m.revise(ctx, r, vm, &types); err != nil {
			return Types{}, err
		}
	}
	return types, nil
}

// decode reads a revision. The VM's author may have chosen its name, so that it may
// be a revision of anything.
func (m matcher) decode(revision *appsv1.ControllerRevision, into *Types) error {
	var object struct {
		Kind, APIVersion string
		Spec             json.RawMessage
	}
	if err := decode.JSON(revision.Data.Raw, &object); err != nil {
		return fmt.Errorf("ControllerRevision %s: %w", revision.Name, err)
	}
	group, _, _ := strings.Cut(object.APIVersion, "/")
	if group != groups.GroupName || object.Kind != m.kind && object.Kind != m.clusterKind {
		return fmt.Errorf("ControllerRevision %s is no revision of a %s or a %s", revision.Name, m.kind, m.clusterKind)
	}
	if err := decode.JSON(object.Spec, m.spec(into)); err != nil {
		return fmt.Errorf("ControllerRevision %s: %w", revision.Name, err)
	}
	return nil
}

// object reads the object that the matcher refers to.
func (m matcher) object(ctx context.Context, r client.Reader, namespace string) (client.Object, error) {
	object, key := m.fresh(), client.ObjectKey{Namespace: namespace, Name: m.GetName()}
	if m.inCluster() {
		key.Namespace = ""
	}
	return object, r.Get(ctx, key, object)
}
