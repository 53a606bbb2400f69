package pod

import (
	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

// Support returns the resources of a container that serves VMs: what the KubeVirt object says of its kind, and otherwise
// the given ones, which it keeps. A quantity of 0 is none. A request above a limit that the object does not set raises it,
// and a limit below a request that it does not set lowers that.
func Support(
	kind kubevirt.SupportContainerType, all []kubevirt.SupportContainerResources, given corev1.ResourceRequirements,
) corev1.ResourceRequirements {
	r := *given.DeepCopy()
	for _, one := range all {
		if one.Type != kind {
			continue
		}
		overlay(r.Requests, one.Resources.Requests)
		overlay(r.Limits, one.Resources.Limits)
		for name, limit := range r.Limits {
			request, has := r.Requests[name]
			_, requestSet := one.Resources.Requests[name]
			_, limitSet := one.Resources.Limits[name]
			switch {
			case !has || limit.Cmp(request) >= 0:
			case limitSet && !requestSet:
				r.Requests[name] = limit
			case requestSet && !limitSet:
				r.Limits[name] = request
			}
		}
	}
	return r
}

func overlay(on, what corev1.ResourceList) {
	for name, quantity := range what {
		if quantity.IsZero() {
			delete(on, name)
		} else {
			on[name] = quantity
		}
	}
}
