package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/decode"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Presets passes the VirtualMachineInstancePresets of a namespace on, page by page, until look returns an error. It must
// include every preset that was created before the call.
type Presets func(ctx context.Context, namespace string, look func(page []unstructured.Unstructured) error) error

// Bounds of a namespace's presets. Each new instance is compared with all of them, and those that select it with each
// other.
const (
	MaxPresets = bounds.Presets
	// MaxPresetBytes bounds the JSON of their specs together.
	MaxPresetBytes = bounds.PresetBytes
)

// errTooManyPresets says that a namespace has more than admission compares.
var errTooManyPresets = fmt.Errorf("the namespace has more than %d VirtualMachineInstancePresets, %d KiB of them, or %d "+
	"elements of their lists: delete some, or use instance types and preferences", MaxPresets, MaxPresetBytes>>10, bounds.Elements)

// annotationApplied, followed by a preset's name, is the key of the annotation that
// an instance gets for each applied preset. Its value is KubeVirt's API version.
const annotationApplied = "virtualmachinepreset.kubevirt.io/"

// excluded reports whether an instance refuses presets. KubeVirt's code has one of
// the keys, and its docs the other.
func excluded(annotations map[string]string) bool {
	return annotations["virtualmachineinstancepresets.admission.kubevirt.io/exclude"] == "true" ||
		annotations["virtualmachinepresets.admission.kubevirt.io/exclude"] == "true"
}

// Subject is the VMI, or the template of VMIs, that presets may apply to.
type Subject struct {
	at   *field.Path // of its metadata
	meta metav1.ObjectMeta
	spec Tree // changed in place
}

// applyPresets adds to a new instance what the presets of its namespace set for its
// labels. A template stays as it is, but is checked as if its instance were created
// now. The problems are contradictions between presets.
func (r *Review) applyPresets(ctx context.Context, list Presets) (field.ErrorList, error) {
	if r.rules.Instance && r.Old != nil {
		r.keepPresets()
		return nil, nil
	}
	if r.rules.Presets == nil {
		return nil, nil
	}
	s, ok := r.rules.Presets(r)
	if !ok || excluded(s.meta.Annotations) {
		return nil, nil
	}
	selecting := selecting{labels: s.meta.Labels}
	err := list(ctx, r.request.Namespace, func(page []unstructured.Unstructured) error {
		if selecting.number > 0 { // this is not the first page
			if err := takeLong(ctx); err != nil {
				return err
			}
		}
		return selecting.add(page)
	})
	if errors.Is(err, errTooManyPresets) {
		return field.ErrorList{field.Forbidden(s.at.Child("labels"), err.Error())}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list presets: %w", err)
	}
	matching := selecting.sorted()
	if len(matching) == 0 {
		return nil, nil
	}
	if problems, err := contradicting(ctx, s.at, matching); err != nil || len(problems) > 0 {
		return problems, err
	}
	applied, overridden := s.apply(matching)
	r.presets = applied
	if r.rules.Instance {
		annotations := Child(Child(r.Object, "metadata"), "annotations")
		for _, name := range applied {
			annotations[annotationApplied+name] = kubevirt.GroupVersion.String()
		}
		if len(overridden) > 0 {
			annotations[pod.AnnotationOverridden] = strings.Join(overridden, "; ")
		}
	}
	return nil, nil
}

// keepPresets keeps what presets added to an instance when it was created: a
// manifest that is applied again does not have it.
func (r *Review) keepPresets() {
	old, _ := r.Old["metadata"].(Tree)
	given, _ := old["annotations"].(Tree)
	kept := false
	for key, value := range given {
		if strings.HasPrefix(key, annotationApplied) || key == pod.AnnotationOverridden {
			SetDefault(Child(Child(r.Object, "metadata"), "annotations"), key, value)
			kept = true
		}
	}
	spec, ok := r.Object["spec"].(Tree)
	before, _ := r.Old["spec"].(Tree)
	domain, had := before["domain"].(Tree)
	if kept && ok && had {
		new(merger).merge("domain", Child(spec, "domain"), domain)
	}
}

// InstanceSubject returns an instance.
func InstanceSubject(r *Review) (Subject, bool) {
	given, ok := r.Object["spec"].(Tree)
	return Subject{field.NewPath("metadata"), r.Meta, given}, ok
}

// TemplateSubject returns a copy of the object's template, with further labels that
// its instances get. Presets do not apply to a template whose instance type or
// preference decides the same fields.
func (r *Review) TemplateSubject(further map[string]string) (Subject, bool) {
	given, ok := r.Object["spec"].(Tree)
	if !ok {
		return Subject{}, false
	}
	merged := runtime.DeepCopyJSON(given)
	owner, found, err := unstructured.NestedFieldNoCopy(merged, r.rules.Within...)
	of, isObject := owner.(Tree)
	if err != nil || !found || !isObject || of["instancetype"] != nil || of["preference"] != nil {
		return Subject{}, false
	}
	r.merged = merged
	template, ok := of["template"].(Tree)
	spec, isObject := template["spec"].(Tree)
	if !ok || !isObject {
		return Subject{}, false
	}
	var meta metav1.ObjectMeta
	text, err := json.Marshal(template["metadata"])
	if err != nil || json.Unmarshal(text, &meta) != nil {
		return Subject{}, false // the check refuses it
	}
	for key, value := range further {
		metav1.SetMetaDataLabel(&meta, key, value)
	}
	return Subject{r.template().Child("metadata"), meta, spec}, true
}

// SetTemplateDefaults fills the defaults into a spec that has a template of
// instances. The template stays as its author wrote it, except for the machine type,
// which a preference may decide.
func (r *Review) SetTemplateDefaults(spec Tree) {
	of := Child(Child(spec, "template"), "spec")
	SetDevices(of)
	if spec["preference"] == nil {
		made, _ := vmspec.Preview(field.NewPath("spec"), r.VMI)
		SetMachine(r, of, made)
	}
}

// apply merges presets into the subject. It returns the names of the presets with
// an effect, and the parts of presets that the subject overrides.
func (s Subject) apply(presets []presetDomain) (applied, overridden []string) {
	if _, ok := s.spec["domain"].(Tree); !ok && s.spec["domain"] != nil {
		return nil, nil // the check refuses it
	}
	for _, p := range presets {
		var m merger
		m.merge("domain", Child(s.spec, "domain"), p.domain)
		if m.applied {
			applied = append(applied, p.name)
		}
		if len(m.overridden) > 0 {
			overridden = append(overridden, p.name+": "+strings.Join(m.overridden, ", "))
		}
	}
	return applied, overridden
}

// presetDomain is what admission reads of a VirtualMachineInstancePreset.
type presetDomain struct {
	name   string
	domain Tree
}

// selecting are the presets that select labels.
type selecting struct {
	labels map[string]string
	found  []presetDomain

	number, bytes, elements int // of all presets so far
}

// add adds those of a page.
func (s *selecting) add(page []unstructured.Unstructured) error {
	for i := range page {
		text, err := json.Marshal(page[i].Object["spec"])
		if err != nil {
			return fmt.Errorf("preset %s: %w", page[i].GetName(), err)
		}
		s.number++
		s.bytes += len(text)
		s.elements += decode.Elements(text)
		if s.number > MaxPresets || s.bytes > MaxPresetBytes || s.elements > bounds.Elements {
			return errTooManyPresets
		}
		if err := s.addOne(page[i], text); err != nil {
			return fmt.Errorf("preset %s: %w", page[i].GetName(), err)
		}
	}
	return nil
}

func (s *selecting) addOne(preset unstructured.Unstructured, text []byte) error {
	var spec struct{ Selector metav1.LabelSelector }
	if err := decode.JSON(text, &spec); err != nil {
		return err
	}
	selector, err := metav1.LabelSelectorAsSelector(&spec.Selector)
	if err != nil {
		return err
	}
	domain, _, _ := unstructured.NestedMap(preset.Object, "spec", "domain")
	if domain != nil && selector.Matches(labels.Set(s.labels)) {
		s.found = append(s.found, presetDomain{preset.GetName(), domain})
	}
	return nil
}

// sorted returns them by name.
func (s *selecting) sorted() []presetDomain {
	slices.SortFunc(s.found, func(a, b presetDomain) int { return strings.Compare(a.name, b.name) })
	return s.found
}

// contradicting refuses, as KubeVirt does, a VMI whose presets cannot all be applied. It names the first two.
func contradicting(ctx context.Context, meta *field.Path, presets []presetDomain) (field.ErrorList, error) {
	for i, a := range presets {
		for _, b := range presets[i+1:] {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if parts := contradictions(a.domain, b.domain); parts != "" {
				return field.ErrorList{field.Forbidden(meta.Child("labels"), fmt.Sprintf(
					"select the presets %s and %s, which contradict each other in %s; choose one of them", a.name, b.name, parts))}, nil
			}
		}
	}
	return nil, nil
}
