package manifest

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Gates are what a cluster's administrator lets instances have. All are off by default,
// as KubeVirt's feature gates of these names are.
type Gates struct {
	// HostDisks lets instances have disks in folders of their nodes.
	HostDisks bool
	// DownwardMetrics lets instances read metrics of their nodes.
	DownwardMetrics bool
	// HookSidecars lets instances have containers that change the VM before its start.
	HookSidecars bool
	// HookImage is the image of such containers that name none; empty refuses these.
	HookImage string
}

// Check returns the problems of an instance that has what is switched off, in KubeVirt's
// words; at is the spec's own path.
func (g Gates) Check(at *field.Path, spec *kubevirt.VirtualMachineInstanceSpec) field.ErrorList {
	var problems field.ErrorList
	for i, v := range spec.Volumes {
		at := at.Child("volumes").Index(i)
		if v.HostDisk != nil && !g.HostDisks {
			problems = append(problems, fields.Refused(at.Child("hostDisk"),
				"HostDisk feature gate is not enabled; use a PVC, or enable it in the KubeVirt object, or set -host-disks of nodevirt-controller"))
		}
		if v.DownwardMetrics != nil && !g.DownwardMetrics {
			problems = append(problems, noDownwardMetrics(at))
		}
	}
	if spec.Domain.Devices.DownwardMetrics != nil && !g.DownwardMetrics {
		problems = append(problems, noDownwardMetrics(at.Child("domain", "devices")))
	}
	return problems
}

func noDownwardMetrics(at *field.Path) *field.Error {
	return fields.Refused(at.Child("downwardMetrics"),
		"DownwardMetrics feature gate is not enabled; enable it in the KubeVirt object, or set -downward-metrics of nodevirt-controller")
}

// CheckAnnotations does so for the annotations of an instance, and checks what is switched on as the
// node will.
func (g Gates) CheckAnnotations(at *field.Path, annotations map[string]string) field.ErrorList {
	if _, given := annotations[vmspec.AnnotationHooks]; given && !g.HookSidecars {
		return field.ErrorList{fields.Refused(at.Key(vmspec.AnnotationHooks),
			"Sidecar feature gate is not enabled; enable it in the KubeVirt object, or set -hook-sidecars of nodevirt-controller")}
	}
	all, err := vmspec.HookSidecars(annotations)
	if err != nil {
		return field.ErrorList{fields.Refused(at.Key(vmspec.AnnotationHooks), "%s",
			strings.ReplaceAll(err.Error(), vmspec.AnnotationHooks+": ", ""))}
	}
	if i := slices.IndexFunc(all, func(s vmspec.HookSidecar) bool { return s.Image == "" }); i >= 0 && g.HookImage == "" {
		return field.ErrorList{fields.Refused(at.Key(vmspec.AnnotationHooks),
			"[%d].image: name one, such as KubeVirt's sidecar-shim, or set -hook-sidecar-image of nodevirt-controller", i)}
	}
	return nil
}
