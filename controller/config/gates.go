package config

import (
	"slices"

	"github.com/nodevirt/nodevirt/controller/manifest"
)

// The feature gates of KubeVirt that switch something here.
const (
	GateHostDisk        = "HostDisk"
	GateDownwardMetrics = "DownwardMetrics"
	GateSidecar         = "Sidecar"
)

// Switches returns the names of the feature gates that switch something.
func Switches() []string { return []string{GateHostDisk, GateDownwardMetrics, GateSidecar} }

// Gates returns what instances may have in this cluster.
func (c Config) Gates() manifest.Gates {
	d := c.developer()
	is := func(gate string, flag bool) bool {
		switch {
		case slices.Contains(d.DisabledFeatureGates, gate):
			return false
		case slices.Contains(d.FeatureGates, gate):
			return true
		}
		return flag
	}
	return manifest.Gates{
		HostDisks:       is(GateHostDisk, c.Flags.Gates.HostDisks),
		DownwardMetrics: is(GateDownwardMetrics, c.Flags.Gates.DownwardMetrics),
		HookSidecars:    is(GateSidecar, c.Flags.Gates.HookSidecars),
		HookImage:       c.Flags.Gates.HookImage,
	}
}
