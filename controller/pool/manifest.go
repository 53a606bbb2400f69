package pool

import (
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	api "kubevirt.io/api/pool/v1beta1"

	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/controller/vm"
	"github.com/nodevirt/nodevirt/shim/fields"
)

const template = "virtualMachineTemplate"

// Supported returns the fields of a pool's spec that a manifest may have beside its
// template's spec, which is a VirtualMachine's.
func Supported() fields.Supported {
	return fields.Supported{
		Rows: []fields.Row{
			fields.At("replicas", fields.Integer(0, 1<<31-1)),
			fields.At("paused", fields.Boolean),
			fields.At("maxUnavailable", maxUnavailable),
			fields.At("nameGeneration.appendIndexToConfigMapRefs", fields.Boolean),
			fields.At("nameGeneration.appendIndexToSecretRefs", fields.Boolean),
			fields.At("autohealing.startUpFailureThreshold", fields.Integer(1, 1<<32-1)),
			fields.At("autohealing.minFailingToStartDuration", duration),
			fields.At("scaleInStrategy.unmanaged", fields.Object),
			fields.At("scaleInStrategy.opportunistic.statePreservation", preservation()),
			fields.At("scaleInStrategy.proactive.statePreservation", preservation()),
			fields.At("updateStrategy.unmanaged", fields.Object),
			fields.At("updateStrategy.opportunistic", fields.Object),
		},
		Wholes: []fields.Whole{{Path: "selector", Is: "a label selector", Check: manifest.LabelSelector}},
	}.
		And(policyFields("scaleInStrategy.proactive.selectionPolicy.")).
		And(policyFields("updateStrategy.proactive.selectionPolicy.")).
		And(manifest.TemplateFields(template))
}

// policyFields returns the fields of the policy that selects VMs.
func policyFields(at string) fields.Supported {
	return fields.Supported{
		Rows: []fields.Row{fields.At(at+"sortPolicy", fields.OneOf(
			api.VirtualMachinePoolSortPolicyAscendingOrder, api.VirtualMachinePoolSortPolicyDescendingOrder,
			api.VirtualMachinePoolSortPolicyNewest, api.VirtualMachinePoolSortPolicyOldest, api.VirtualMachinePoolSortPolicyRandom,
		))},
		Wholes: []fields.Whole{
			{Path: at + "selectors.labelSelector", Is: "a label selector", Check: manifest.LabelSelector},
			{Path: at + "selectors.nodeSelectorRequirementMatcher", Is: "node selector requirements", Check: manifest.NodeRequirements},
		},
		Hints: map[string]string{at + "basePolicy": "use sortPolicy"},
	}
}

// preservation takes the states that can outlive a VM. No memory can.
func preservation() fields.Takes {
	return fields.OneOf(api.StatePreservationDisabled, api.StatePreservationOffline)
}

// maxUnavailable takes a number or a percentage. With none, no VM would be updated.
func maxUnavailable(at *field.Path, value any) *field.Error {
	n := intstr.FromInt32(0)
	switch value := value.(type) {
	case int64:
		return fields.Integer(1, 1<<31-1)(at, value)
	case string:
		n = intstr.FromString(value)
	}
	if percent, err := intstr.GetScaledValueFromIntOrPercent(&n, 100, true); err != nil || percent < 1 || percent > 100 {
		return fields.Invalid(at, value, "must be a number greater than 0, or from 1%% to 100%%")
	}
	return nil
}

// duration takes a duration of Go.
func duration(at *field.Path, value any) *field.Error {
	return fields.String(func(at *field.Path, s string) *field.Error {
		if d, err := time.ParseDuration(s); err != nil || d < 0 {
			return fields.Invalid(at, s, "must be a duration such as 90s or 5m")
		}
		return nil
	})(at, value)
}

// CheckManifest decodes a pool's spec out of a manifest, as [vm.CheckManifest] decodes
// a VirtualMachine's. The selector must select what the template creates. The spec is
// nil if there is a problem.
func CheckManifest(at *field.Path, tree any) (*api.VirtualMachinePoolSpec, field.ErrorList) {
	rest, spec, given := manifest.CutTemplate(tree, template)
	pool, problems := fields.CheckAs[api.VirtualMachinePoolSpec](Supported().Table(func() any { return new(api.VirtualMachinePoolSpec) }), at, rest)
	if !given {
		problems = append(problems, field.Required(at.Child(template, "spec"), "describe the VMs here"))
	} else {
		within := at.Child(template, "spec")
		made, p := vm.CheckManifest(within, spec)
		problems = append(append(problems, vm.CheckRunning(within, spec)...), p...)
		if made != nil && pool != nil {
			pool.VirtualMachineTemplate.Spec = *made
		}
	}
	if pool != nil {
		problems = append(problems, fields.Unrelated(checkTogether(at, pool), problems)...)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return pool, nil
}

// checkTogether finds what no field shows by itself.
func checkTogether(at *field.Path, pool *api.VirtualMachinePoolSpec) field.ErrorList {
	var problems field.ErrorList
	if t := pool.VirtualMachineTemplate; t != nil {
		problems = append(problems,
			manifest.CheckSelector(at.Child("selector"), pool.Selector, template+".metadata.labels", t.ObjectMeta.Labels)...)
	}
	if s := pool.ScaleInStrategy; s != nil {
		problems = append(problems, checkOne(at.Child("scaleInStrategy"), s.Unmanaged != nil, s.Opportunistic != nil, s.Proactive != nil)...)
	}
	if s := pool.UpdateStrategy; s != nil {
		problems = append(problems, checkOne(at.Child("updateStrategy"), s.Unmanaged != nil, s.Opportunistic != nil, s.Proactive != nil)...)
	}
	return problems
}

// checkOne refuses two strategies for one thing.
func checkOne(at *field.Path, given ...bool) field.ErrorList {
	n := 0
	for _, is := range given {
		if is {
			n++
		}
	}
	if n > 1 {
		return field.ErrorList{fields.Refused(at, "use one of unmanaged, opportunistic and proactive")}
	}
	return nil
}
