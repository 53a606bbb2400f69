package instancetype

import kubevirt "kubevirt.io/api/core/v1"

// Reference names the instance type or the preference of a VM.
type Reference struct {
	Kind string
	// Namespace is empty for an object of the whole cluster, Name for one that is not known yet.
	Namespace, Name string
	// Revision is the name of the ControllerRevision that the VM uses; empty if it has none yet.
	Revision string
}

// References returns those of a VM, as its spec and its status have them.
func References(vm *kubevirt.VirtualMachine) []Reference {
	var all []Reference
	for _, m := range matchers(vm) {
		r := Reference{Kind: m.kindName(), Name: m.GetName(), Revision: m.GetRevisionName()}
		if !m.inCluster() {
			r.Namespace = vm.Namespace
		}
		if used := *m.status(&vm.Status); used != nil {
			r.Revision = ""
			if used.ControllerRevisionRef != nil {
				r.Revision = used.ControllerRevisionRef.Name
			}
		}
		all = append(all, r)
	}
	return all
}
