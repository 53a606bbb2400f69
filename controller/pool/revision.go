package pool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/pool/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/decode"
	"github.com/nodevirt/nodevirt/controller/pod"
)

// revision is the part of a pool's spec that its VMs are made of.
type revision struct {
	Template       *api.VirtualMachineTemplateSpec       `json:"virtualMachineTemplate"`
	NameGeneration *api.VirtualMachinePoolNameGeneration `json:"nameGeneration,omitempty"`
}

func revisionOf(pool *vmPool) revision {
	return revision{pool.Spec.VirtualMachineTemplate, pool.Spec.NameGeneration}
}

// sameVM reports whether two revisions make VMs with the same spec.
func (v revision) sameVM(other revision) bool {
	return equality.Semantic.DeepEqual(v.NameGeneration, other.NameGeneration) &&
		equality.Semantic.DeepEqual(v.Template.Spec, other.Template.Spec)
}

// sameInstance reports whether two revisions make VMs with the same instances.
func (v revision) sameInstance(other revision) bool {
	a, b := v.Template.Spec, other.Template.Spec
	return equality.Semantic.DeepEqual(v.NameGeneration, other.NameGeneration) && equality.Semantic.DeepEqual(a.Template, b.Template) &&
		equality.Semantic.DeepEqual(a.Instancetype, b.Instancetype) && equality.Semantic.DeepEqual(a.Preference, b.Preference)
}

// sameStrategy reports whether two revisions agree when VMs run.
func (v revision) sameStrategy(other revision) bool {
	a, b := v.Template.Spec, other.Template.Spec
	return equality.Semantic.DeepEqual(a.RunStrategy, b.RunStrategy) && equality.Semantic.DeepEqual(a.Running, b.Running)
}

// maxRevision is the length of a label's value.
const maxRevision = 63

// revisionName returns the name of a pool's present revision, which follows from its
// content: a pool that is only scaled keeps its revision.
func revisionName(pool *vmPool) string {
	text, err := json.Marshal(revisionOf(pool))
	if err != nil { // not of a spec that was decoded
		text = fmt.Append(nil, pool.Generation)
	}
	sum := sha256.Sum256(append([]byte(pool.UID), text...))
	digest := hex.EncodeToString(sum[:8])
	return strings.TrimRight(pool.Name[:min(len(pool.Name), maxRevision-1-len(digest))], "-.") + "-" + digest
}

// revisions keeps the templates of pools' VMs, as ControllerRevisions.
type revisions struct {
	live      client.Reader
	revisions client.Writer
}

// keep creates the ControllerRevision of the pool's present revision.
func (t *revisions) keep(ctx context.Context, pool *vmPool) error {
	data, err := pod.RevisionData(map[string]any{"spec": revisionOf(pool)})
	if err != nil {
		return fmt.Errorf("encode the template of pool %s: %w", pool.Name, err)
	}
	made := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: revisionName(pool), Namespace: pool.Namespace,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pool, api.SchemeGroupVersion.WithKind(api.VirtualMachinePoolKind))},
		},
		Data:     data,
		Revision: pool.Generation,
	}
	if err := t.revisions.Create(ctx, made); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create ControllerRevision %s: %w", made.Name, err)
	}
	return nil
}

// own reads the ControllerRevision of a name; nil if the pool has none of it. A VM's
// label names it, and users can change labels.
func (t *revisions) own(ctx context.Context, pool *vmPool, name string) (*appsv1.ControllerRevision, error) {
	if name == "" {
		return nil, nil
	}
	have := new(appsv1.ControllerRevision)
	err := t.live.Get(ctx, client.ObjectKey{Namespace: pool.Namespace, Name: name}, have)
	switch {
	case apierrors.IsNotFound(err), err == nil && !metav1.IsControlledBy(have, pool):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read ControllerRevision %s: %w", name, err)
	}
	return have, nil
}

// former returns the revision of a name; nil if it is gone.
func (t *revisions) former(ctx context.Context, pool *vmPool, name string) (*revision, error) {
	have, err := t.own(ctx, pool, name)
	if err != nil || have == nil {
		return nil, err
	}
	var content struct{ Spec revision }
	if err := decode.JSON(have.Data.Raw, &content); err != nil {
		return nil, fmt.Errorf("decode ControllerRevision %s: %w; delete it", name, err)
	}
	if content.Spec.Template == nil {
		return nil, nil
	}
	return &content.Spec, nil
}

// revisions returns the names of the revisions that a VM and its instances are of.
func (m *member) revisions() []string {
	all := []string{m.vm.Labels[kubevirt.VirtualMachinePoolRevisionName]}
	if t := m.vm.Spec.Template; t != nil {
		all = append(all, t.ObjectMeta.Labels[kubevirt.VirtualMachinePoolRevisionName])
	}
	return all
}

// prune deletes revisions that no VM is of any more. Those that a controller leaves
// when it dies go with the pool.
func (t *revisions) prune(ctx context.Context, w *work) error {
	used := []string{"", revisionName(w.pool)}
	for _, m := range w.active {
		used = append(used, m.revisions()...)
	}
	slices.Sort(w.unused)
	for _, name := range slices.Compact(w.unused) {
		if slices.Contains(used, name) {
			continue
		}
		old, err := t.own(ctx, w.pool, name)
		if err != nil {
			return err
		}
		if old == nil {
			continue
		}
		if err := t.revisions.Delete(ctx, old, client.Preconditions{UID: &old.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete ControllerRevision %s: %w", name, err)
		}
	}
	return nil
}
