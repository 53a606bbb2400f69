package clone

import (
	"k8s.io/apimachinery/pkg/util/rand"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/fields"
)

func rules() admission.Rules {
	return admission.Rules{
		Check:       admission.CheckSpec("name the source", CheckManifest),
		CheckUpdate: admission.SameSpec("spec is immutable after creation"),
		Default:     nameTarget,
	}
}

// nameTarget completes the target of a new clone; later the target stays as it is, also for an
// author who leaves out what this has added.
func nameTarget(r *admission.Review, spec admission.Tree) {
	if r.Old != nil {
		before, _ := r.Old["spec"].(admission.Tree)
		if was, ok := before["target"].(admission.Tree); ok {
			target := admission.Child(spec, "target")
			for key, value := range was {
				admission.SetDefault(target, key, value)
			}
		}
		return
	}
	target := admission.Child(spec, "target")
	admission.SetDefault(target, "apiGroup", kubevirt.GroupVersion.Group)
	admission.SetDefault(target, "kind", kindVM)
	source, _ := admission.Child(spec, "source")["name"].(string)
	const enough = 16
	admission.SetDefault(target, "name", uniqueName(source, rand.String(enough)))
}

// targetName returns the name of the VM that a clone makes. Admission writes it into the spec.
func targetName(c *vmClone) string {
	if t := c.Spec.Target; t != nil && t.Name != "" {
		return t.Name
	}
	source := ""
	if c.Spec.Source != nil {
		source = c.Spec.Source.Name
	}
	return uniqueName(source, string(c.UID))
}

// uniqueName returns KubeVirt's name of a clone whose author gives it none.
func uniqueName(source, of string) string {
	return pod.UniqueName("clone-"+source, fields.MaxLabel, of)
}
