package instancetype

import (
	"strings"

	kubevirt "kubevirt.io/api/core/v1"
	groups "kubevirt.io/api/instancetype"
	api "kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// matcher is a VM's reference to an instance type or a preference: in its namespace
// or, by default, in the cluster.
type matcher struct {
	kubevirt.Matcher
	// field is where a virtual machine's spec has it.
	field             string
	kind, clusterKind string
	// nameLabel and kindLabel are the labels by which what a volume comes from names a type.
	nameLabel, kindLabel string
	// missing is the reason of a condition if there is no such object.
	missing string
	// annotation and clusterAnnotation have the name, on an instance.
	annotation, clusterAnnotation string
	// status is where the virtual machine's status has it.
	status func(*kubevirt.VirtualMachineStatus) **kubevirt.InstancetypeStatusRef
	// spec returns where to decode its spec.
	spec func(*Types) any
	// empty is a new object of the kind.
	empty, clusterEmpty func() client.Object
}

// matchers returns a VM's matchers, at most one of each kind.
func matchers(vm *kubevirt.VirtualMachine) []matcher {
	var all []matcher
	if m := vm.Spec.Instancetype; m != nil {
		all = append(all, matcher{
			Matcher: m, field: "instancetype", missing: "FailedFindInstancetype",
			nameLabel: groups.DefaultInstancetypeLabel, kindLabel: groups.DefaultInstancetypeKindLabel,
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
			Matcher: m, field: "preference", missing: "FailedFindPreference",
			nameLabel: groups.DefaultPreferenceLabel, kindLabel: groups.DefaultPreferenceKindLabel,
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

// inCluster reports whether the object is in no namespace. The kind may be in any
// case, and in plural.
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

// Kinds returns new objects of all kinds that a VM can refer to.
func Kinds() []client.Object {
	return []client.Object{
		new(api.VirtualMachineInstancetype), new(api.VirtualMachineClusterInstancetype),
		new(api.VirtualMachinePreference), new(api.VirtualMachineClusterPreference),
	}
}

// Wants reports whether a VM refers to an object and has no revision of it yet.
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

// SetAnnotations changes the annotations of an instance to those that name its VM's types.
func SetAnnotations(all map[string]string, vm *kubevirt.VirtualMachine) {
	for _, m := range matchers(vm) {
		delete(all, m.annotation)
		delete(all, m.clusterAnnotation)
		if m.inCluster() {
			all[m.clusterAnnotation] = m.GetName()
		} else {
			all[m.annotation] = m.GetName()
		}
	}
}
