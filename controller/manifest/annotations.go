package manifest

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// PodAnnotations returns the annotations of nodevirt that affect nothing outside
// their pod, sorted. Everyone who may create the pod may set them. A policy in
// deploy/, which has the same list, reserves the others for the controller.
func PodAnnotations() []string {
	return slices.DeleteFunc(vmspec.Annotations(), func(key string) bool {
		return key == vmspec.AnnotationImports || key == vmspec.AnnotationNetworkBindings || key == vmspec.AnnotationNetworkDisks || key == vmspec.AnnotationMigration ||
			key == vmspec.AnnotationDownwardMetrics || key == vmspec.AnnotationCopiedVolumes
	})
}

// Annotations returns the annotations of nodevirt that a VMI or a template may
// have for its pod, sorted. The controller writes the others, or they are for
// pods without a VMI.
func Annotations() []string {
	return slices.DeleteFunc(PodAnnotations(), func(key string) bool {
		return key == vmspec.AnnotationVMI || key == vmspec.AnnotationVMContainer || key == vmspec.AnnotationBlankDisks ||
			key == vmspec.AnnotationPreallocated
	})
}

// CheckAnnotations checks a manifest's annotations of nodevirt as the node will.
// VMI is the spec that they belong to, which may be nil.
func CheckAnnotations(
	at *field.Path, annotations map[string]string, vmi *kubevirt.VirtualMachineInstanceSpec,
) field.ErrorList {
	var problems field.ErrorList
	own := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if !strings.HasPrefix(key, vmspec.AnnotationPrefix) {
			continue
		}
		own[key] = annotations[key]
		if !slices.Contains(Annotations(), key) {
			problems = append(problems, fields.Refused(at.Key(fields.Excerpt(key)),
				"not among those that a VM may have: %s", strings.Join(Annotations(), ", ")))
		} else if err := vmspec.CheckAnnotations(map[string]string{key: annotations[key]}, nil); err != nil {
			problems = append(problems, fields.Refused(at.Key(key), "%s", strings.TrimPrefix(err.Error(), key+": ")))
		}
	}
	if len(problems) > 0 {
		return problems
	}
	if err := vmspec.CheckAnnotations(own, vmi); err != nil {
		key, reason, _ := strings.Cut(err.Error(), ": ")
		if !strings.HasPrefix(key, vmspec.AnnotationPrefix) {
			return field.ErrorList{fields.Refused(at, "%s", err)}
		}
		return field.ErrorList{fields.Refused(at.Key(key), "%s", reason)}
	}
	return nil
}
