package instancetype

import (
	"strings"

	kubevirt "kubevirt.io/api/core/v1"
	groups "kubevirt.io/api/instancetype"
	api "kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// matcher is what a virtual machine refers to: an instance type or a preference, in
// its namespace or, where it doesn't say, in the cluster.
type matcher struct {
	kubevirt.Matcher
	kind, clusterKind string
	// missing is the reason of a condition.
	missing string
	// annotation and clusterAnnotation have the name, on an instance.
	annotation, clusterAnnotation string
	// status is where the virtual machine's status has it.
	status func(*kubevirt.VirtualMachineStatus) **kubevirt.InstancetypeStatusRef
	// spec makes room for it.
	spec func(*Types) any
	// empty is a new object of the kind.
	empty, clusterEmpty func() client.Object
}

// matchers are those of a virtual machine, at most one of each.
func matchers(vm *kubevirt.VirtualMachine) []matcher {
	var all []matcher
	if m := vm.Spec.Instancetype; m != nil {
		all = append(all, matcher{
			Matcher: m, missing: "FailedFindInstancetype",
			kind: "VirtualMachineInstancetype", clusterKind: "VirtualMachineClusterInstancetype",
			annotation: kubevirt.InstancetypeAnnotation, clusterAnnotation: kubevirt.ClusterInstancetypeAnnotation,
			status: func(s *kubevirt.VirtualMachineStatus) **kubevirt.InstancetypeStatusRef { return &s.InstancetypeRef },
			spec: func(t *Types) any {
				t.Instancetype = new(api.VirtualMachineInstancetypeSpec)
				return t.Instancetype
			},
			empty:        func() client.Object { return new(api.VirtualMachineInstancetype) },
			clusterEmpty: func() client.Object { return new(api.VirtualMachineClusterInstancetype) },
		})
	}
	if m := vm.Spec.Preference; m != nil {
		all = append(all, matcher{
			Matcher: m, missing: "FailedFindPreference",
			kind: "VirtualMachinePreference", clusterKind: "VirtualMachineClusterPreference",
			annotation: kubevirt.PreferenceAnnotation, clusterAnnotation: kubevirt.ClusterPreferenceAnnotation,
			status: func(s *kubevirt.VirtualMachineStatus) **kubevirt.InstancetypeStatusRef { return &s.PreferenceRef },
			spec: func(t *Types) any {
				t.Preference = new(api.VirtualMachinePreferenceSpec)
				return t.Preference
			},
			empty:        func() client.Object { return new(api.VirtualMachinePreference) },
			clusterEmpty: func() client.Object { return new(api.VirtualMachineClusterPreference) },
		})
	}
	return all
}

func (m matcher) String() string { return m.kindName() + " " + m.GetName() }

// inCluster tells whether it is in no namespace. A kind is said in any case, and in
// plural too.
func (m matcher) inCluster() bool {
	return !strings.EqualFold(strings.TrimSuffix(strings.ToLower(m.GetKind()), "s"), m.kind)
}

func (m matcher) kindName() string {
	if m.inCluster() {
		return m.clusterKind
	}
	return m.kind
}

func (m matcher) fresh() client.Object {
	if m.inCluster() {
		return m.clusterEmpty()
	}
	return m.empty()
}

// Kinds are new objects of all that a virtual machine can refer to.
func Kinds() []client.Object {
	return []client.Object{
		new(api.VirtualMachineInstancetype), new(api.VirtualMachineClusterInstancetype),
		new(api.VirtualMachinePreference), new(api.VirtualMachineClusterPreference),
	}
}

// Wants tells whether a virtual machine refers to an object, which it has not kept a
// revision of.
func Wants(vm *kubevirt.VirtualMachine, object client.Object) bool {
	for _, m := range matchers(vm) {
		ofKind := object.GetObjectKind().GroupVersionKind().Group == groups.GroupName &&
			object.GetObjectKind().GroupVersionKind().Kind == m.kindName()
		if ofKind && object.GetName() == m.GetName() && m.revisionOf(vm) == "" {
			return true
		}
	}
	return false
}

// Annotations are what an instance tells of its virtual machine's types.
func Annotations(vm *kubevirt.VirtualMachine) map[string]string {
	all := map[string]string{}
	for _, m := range matchers(vm) {
		if m.inCluster() {
			all[m.clusterAnnotation] = m.GetName()
		} else {
			all[m.annotation] = m.GetName()
		}
	}
	return all
}
