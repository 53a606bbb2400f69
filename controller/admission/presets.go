package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/preset"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Presets returns the VirtualMachineInstancePresets of a namespace. One that was
// made before the call must be among them.
type Presets func(ctx context.Context, namespace string) ([]unstructured.Unstructured, error)

// annotationApplied and a preset's name are what an instance has that a preset was
// applied to, with KubeVirt's version as its value.
const annotationApplied = "virtualmachinepreset.kubevirt.io/"

// excluded tells whether an instance wants no preset. KubeVirt's code and its docs
// have a key each.
func excluded(annotations map[string]string) bool {
	return annotations["virtualmachineinstancepresets.admission.kubevirt.io/exclude"] == "true" ||
		annotations["virtualmachinepresets.admission.kubevirt.io/exclude"] == "true"
}

// subject is a machine that presets may be for.
type subject struct {
	at   *field.Path // of its metadata
	meta metav1.ObjectMeta
	spec tree // changed in place
}

// applyPresets gives a new instance what presets of its namespace say for its
// labels. A template stays as it is: it is checked as if its instance were made
// now. The problems are those of presets that contradict each other.
func (r *review) applyPresets(ctx context.Context, list Presets) (field.ErrorList, error) {
	if r.request.Kind.Kind == kindVMI && r.old != nil {
		r.keepPresets()
		return nil, nil
	}
	s, ok := r.subject()
	if !ok || excluded(s.meta.Annotations) {
		return nil, nil
	}
	all, err := list(ctx, r.request.Namespace)
	if err != nil {
		return nil, fmt.Errorf("list presets: %w", err)
	}
	matching, err := matching(all, s.meta.Labels)
	if err != nil || len(matching) == 0 {
		return nil, err
	}
	if problems := contradicting(s.at, matching); len(problems) > 0 {
		return problems, nil
	}
	applied, overridden := s.apply(matching)
	r.presets = applied
	if r.request.Kind.Kind == kindVMI {
		annotations := child(child(r.object, "metadata"), "annotations")
		for _, name := range applied {
			annotations[annotationApplied+name] = kubevirt.GroupVersion.String()
		}
		if len(overridden) > 0 {
			annotations[pod.AnnotationOverridden] = strings.Join(overridden, "; ")
		}
	}
	return nil, nil
}

// keepPresets lets an instance keep what presets gave it when it was made: a
// manifest that is applied again doesn't say it.
func (r *review) keepPresets() {
	old, _ := r.old["metadata"].(tree)
	given, _ := old["annotations"].(tree)
	kept := false
	for key, value := range given {
		if strings.HasPrefix(key, annotationApplied) || key == pod.AnnotationOverridden {
			setDefault(child(child(r.object, "metadata"), "annotations"), key, value)
			kept = true
		}
	}
	spec, ok := r.object["spec"].(tree)
	before, _ := r.old["spec"].(tree)
	domain, had := before["domain"].(tree)
	if kept && ok && had {
		new(merger).merge("domain", child(spec, "domain"), domain)
	}
}

// subject is the request's new machine, or its template.
func (r *review) subject() (subject, bool) {
	given, ok := r.object["spec"].(tree)
	switch kind := r.request.Kind.Kind; {
	case kind == kindVMI:
		return subject{field.NewPath("metadata"), r.meta, given}, ok
	case !ok, kind != kindVM && kind != kindSet,
		given["instancetype"] != nil || given["preference"] != nil: // what these say the instance says itself
		return subject{}, false
	}
	r.merged = runtime.DeepCopyJSON(given)
	template, ok := r.merged["template"].(tree)
	spec, isMachine := template["spec"].(tree)
	if !ok || !isMachine {
		return subject{}, false
	}
	var meta metav1.ObjectMeta
	text, err := json.Marshal(template["metadata"])
	if err != nil || json.Unmarshal(text, &meta) != nil {
		return subject{}, false // it is refused for that
	}
	if r.request.Kind.Kind == kindVM {
		if meta.Labels == nil {
			meta.Labels = map[string]string{}
		}
		meta.Labels[kubevirt.VirtualMachineLabel] = r.meta.Name
	}
	return subject{field.NewPath("spec", "template", "metadata"), meta, spec}, true
}

// apply merges presets into a machine, and returns the names of those that it has
// something of, and what of which it has otherwise.
func (s subject) apply(presets []presetDomain) (applied, overridden []string) {
	if _, ok := s.spec["domain"].(tree); !ok && s.spec["domain"] != nil {
		return nil, nil // it is refused for that
	}
	for _, p := range presets {
		var m merger
		m.merge("domain", child(s.spec, "domain"), p.domain)
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
	domain tree
}

// matching are the presets that select labels, by name.
func matching(all []unstructured.Unstructured, of map[string]string) ([]presetDomain, error) {
	var found []presetDomain
	for i := range all {
		var spec struct{ Selector metav1.LabelSelector }
		text, err := json.Marshal(all[i].Object["spec"])
		if err == nil {
			err = json.Unmarshal(text, &spec)
		}
		if err != nil {
			return nil, fmt.Errorf("preset %s: %w", all[i].GetName(), err)
		}
		selector, err := metav1.LabelSelectorAsSelector(&spec.Selector)
		if err != nil {
			return nil, fmt.Errorf("preset %s: %w", all[i].GetName(), err)
		}
		domain, _, _ := unstructured.NestedMap(all[i].Object, "spec", "domain")
		if domain != nil && selector.Matches(labels.Set(of)) {
			found = append(found, presetDomain{all[i].GetName(), domain})
		}
	}
	slices.SortFunc(found, func(a, b presetDomain) int { return strings.Compare(a.name, b.name) })
	return found, nil
}

// contradicting refuses, as KubeVirt does, a machine with presets of which not all
// can be applied.
func contradicting(meta *field.Path, presets []presetDomain) field.ErrorList {
	var problems field.ErrorList
	for i, a := range presets {
		for _, b := range presets[i+1:] {
			if parts := contradictions(a.domain, b.domain); parts != "" {
				problems = append(problems, field.Forbidden(meta.Child("labels"), fmt.Sprintf(
					"select the presets %s and %s, which contradict each other in %s; choose one of them", a.name, b.name, parts)))
			}
		}
	}
	return problems
}

func (r *review) checkPreset() field.ErrorList {
	meta, spec := field.NewPath("metadata"), field.NewPath("spec")
	problems := checkName(meta, r.meta.Name) // it becomes an annotation's
	tree := r.object["spec"]
	if tree == nil {
		return append(problems, field.Required(spec, "it says what the preset gives, and to which instances"))
	}
	for _, key := range slices.Sorted(maps.Keys(r.meta.Annotations)) {
		if strings.HasPrefix(key, vmspec.AnnotationPrefix) {
			problems = append(problems, field.Forbidden(meta.Child("annotations").Key(key), "speaks to an instance"))
		}
	}
	return append(problems, preset.CheckManifest(spec, tree)...)
}
