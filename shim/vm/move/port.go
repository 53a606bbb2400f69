package move

import (
	"math"
	"slices"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// firstPort is the lowest TCP port on which a pod may wait for a guest.
const firstPort = 49152

// Port returns the TCP port on which a pod that waits for a guest listens: the first from
// 49152 on that none of the VM's cards forwards by a list. It stays the pod's: a masqueraded
// guest that came by migration is not reached on it. It is 0 if all are forwarded.
func Port(s vmspec.Spec) uint16 {
	for n := firstPort; n <= math.MaxUint16; n++ {
		forwarded := func(p vmspec.Port) bool { return p.Contains("tcp", uint16(n)) }
		if !slices.ContainsFunc(s.Interfaces, func(i vmspec.Interface) bool { return slices.ContainsFunc(i.Ports, forwarded) }) {
			return uint16(n)
		}
	}
	return 0
}
