package instancetype

import api "kubevirt.io/api/instancetype/v1beta1"

// defaultRatio is of parts to a part of the next larger kind, and threadsPerCore
// that of threads where a preference spreads over all three.
const (
	defaultRatio   = 2
	threadsPerCore = 2
)

// preferredTopology returns what vCPUs should become, by the current names.
func preferredTopology(p *api.VirtualMachinePreferenceSpec) api.PreferredCPUTopology {
	if p == nil || p.CPU == nil || p.CPU.PreferredCPUTopology == nil {
		return api.Sockets
	}
	switch t := *p.CPU.PreferredCPUTopology; t {
	case "", api.DeprecatedPreferSockets, api.DeprecatedPreferAny, api.Any:
		return api.Sockets
	case api.DeprecatedPreferCores:
		return api.Cores
	case api.DeprecatedPreferThreads:
		return api.Threads
	case api.DeprecatedPreferSpread:
		return api.Spread
	default:
		return t
	}
}

// spread is how a preference spreads vCPUs.
func spread(p *api.VirtualMachinePreferenceSpec) (ratio uint32, across api.SpreadAcross) {
	ratio, across = defaultRatio, api.SpreadAcrossSocketsCores
	if p.PreferSpreadSocketToCoreRatio != 0 {
		ratio = p.PreferSpreadSocketToCoreRatio
	}
	if p.CPU.SpreadOptions == nil {
		return ratio, across
	}
	if a := p.CPU.SpreadOptions.Across; a != nil && *a != "" {
		across = *a
	}
	if r := p.CPU.SpreadOptions.Ratio; r != nil && *r != 0 {
		ratio = *r
	}
	return ratio, across
}

// topology is that of the instance type's vCPUs.
func (t Types) topology() (sockets, cores, threads uint32) {
	n := t.Instancetype.CPU.Guest
	switch preferredTopology(t.Preference) {
	case api.Cores:
		return 1, n, 1
	case api.Threads:
		return 1, 1, n
	case api.Spread:
		if n == 1 {
			return 1, 1, 1
		}
		ratio, across := spread(t.Preference)
		switch across {
		case api.SpreadAcrossCoresThreads:
			return 1, n / ratio, ratio
		case api.SpreadAcrossSocketsCoresThreads:
			return n / threadsPerCore / ratio, ratio, threadsPerCore
		default:
			return n / ratio, ratio, 1
		}
	default:
		return n, 1, 1
	}
}
