package vmspec

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
)

// PodAnnotations are the keys that reach nothing beyond the pod, sorted: whoever may
// make the pod may set them. In a cluster the others are the controller's, by a
// policy in deploy/ that lists these.
func PodAnnotations() []string {
	return slices.DeleteFunc(Annotations(), func(key string) bool { return key == AnnotationImports })
}

// ManifestAnnotations are the keys that a VM or a VMI may have for its pod,
// sorted. The rest of a pod's is the controller's to write, or for pods without a VMI.
func ManifestAnnotations() []string {
	return slices.DeleteFunc(PodAnnotations(), func(key string) bool {
		return key == AnnotationVMI || key == AnnotationVMContainer || key == AnnotationDiskOrigin
	})
}

// CheckAnnotations checks a manifest's annotations of nodevirt as its node will,
// beside the spec that they belong to, which may be nil.
func CheckAnnotations(
	at *field.Path, annotations map[string]string, vmi *kubevirt.VirtualMachineInstanceSpec,
) field.ErrorList {
	var problems field.ErrorList
	own := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if !strings.HasPrefix(key, AnnotationPrefix) {
			continue
		}
		own[key] = annotations[key]
		if !slices.Contains(ManifestAnnotations(), key) {
			problems = append(problems, refused(at.Key(excerpt(key)),
				"not among those that a VM may have: %s", strings.Join(ManifestAnnotations(), ", ")))
		} else if _, err := readAnnotations(map[string]string{key: annotations[key]}); err != nil {
			problems = append(problems, refused(at.Key(key), "%s", strings.TrimPrefix(err.Error(), key+": ")))
		}
	}
	if len(problems) > 0 {
		return problems
	}
	w, err := readAnnotations(own)
	if err == nil {
		w.vmi = vmi
		err = checkSeed(w)
	}
	if err != nil {
		key, reason, _ := strings.Cut(err.Error(), ": ")
		if !strings.HasPrefix(key, AnnotationPrefix) {
			return field.ErrorList{refused(at, "%s", err)}
		}
		return field.ErrorList{refused(at.Key(key), "%s", reason)}
	}
	return nil
}
