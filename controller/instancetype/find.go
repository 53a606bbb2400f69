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
)

// MissingError says that there is no such object yet: once there is, the virtual
// machine can go on.
type MissingError struct {
	// Reason is KubeVirt's word for it, of a condition.
	Reason string
	// Revision tells that it is one of the virtual machine's revisions, which no
	// controller watches, and not what they are of.
	Revision bool
	err      error
}

func (e *MissingError) Error() string { return e.err.Error() }

func (e *MissingError) Unwrap() error { return e.err }

// Find returns the types that a virtual machine's instances are made with: those of
// its revisions, or as the objects are now where it has none yet. The reader must
// not be behind, and a *MissingError tells of what isn't there.
func Find(ctx context.Context, r client.Reader, vm *kubevirt.VirtualMachine) (Types, error) {
	var types Types
	for _, m := range matchers(vm) {
		if _, err := m.revise(ctx, r, vm, &types); err != nil {
			return Types{}, err
		}
	}
	return types, nil
}

// decode reads a revision. Its name may be the author's of a virtual machine, so
// that it may be of anything.
func (m matcher) decode(revision *appsv1.ControllerRevision, into *Types) error {
	var object struct {
		Kind, APIVersion string
		Spec             json.RawMessage
	}
	if err := json.Unmarshal(revision.Data.Raw, &object); err != nil {
		return fmt.Errorf("ControllerRevision %s: %w", revision.Name, err)
	}
	group, _, _ := strings.Cut(object.APIVersion, "/")
	if group != groups.GroupName || object.Kind != m.kind && object.Kind != m.clusterKind {
		return fmt.Errorf("ControllerRevision %s is no revision of a %s or a %s", revision.Name, m.kind, m.clusterKind)
	}
	if err := json.Unmarshal(object.Spec, m.spec(into)); err != nil {
		return fmt.Errorf("ControllerRevision %s: %w", revision.Name, err)
	}
	return nil
}

// object reads what is referred to.
func (m matcher) object(ctx context.Context, r client.Reader, namespace string) (client.Object, error) {
	object, key := m.fresh(), client.ObjectKey{Namespace: namespace, Name: m.GetName()}
	if m.inCluster() {
		key.Namespace = ""
	}
	return object, r.Get(ctx, key, object)
}
