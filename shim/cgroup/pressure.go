package cgroup

import "github.com/opencontainers/cgroups"

// Pressure is how long tasks of a group waited for a resource, from the kernel's pressure stall
// information: v2 only.
type Pressure struct {
	Some, Full Stall // some tasks, or all of them, stalled
}

// Stall is one line of pressure stall information.
type Stall struct {
	Total                uint64  // ns
	Avg10, Avg60, Avg300 float64 // percent of the last 10, 60 and 300 seconds
}

func pressure(raw *cgroups.PSIStats) *Pressure {
	if raw == nil {
		return nil
	}
	return &Pressure{Some: stall(raw.Some), Full: stall(raw.Full)}
}

// stall converts the kernel's microseconds.
func stall(raw cgroups.PSIData) Stall {
	return Stall{Total: raw.Total * 1000, Avg10: raw.Avg10, Avg60: raw.Avg60, Avg300: raw.Avg300}
}
