package table

import (
	"fmt"
	"iter"
	"maps"
)

// users gives each VM a different user id, and its TPM another one.
type users struct{ base, count uint32 }

// free returns the n lowest user ids that no VM and no process has.
func (u users) free(vms iter.Seq[*VM], used map[uint32]bool, n int) ([]uint32, error) {
	taken := maps.Clone(used)
	if taken == nil {
		taken = map[uint32]bool{}
	}
	for v := range vms {
		d := v.Record().Domain
		taken[d.UID], taken[d.TPMUID] = true, true
	}
	var all []uint32
	for i := range u.count {
		if uid := u.base + i; !taken[uid] {
			if all = append(all, uid); len(all) == n {
				return all, nil
			}
		}
	}
	return nil, fmt.Errorf("all %d user ids for VMs are taken: widen vm.uid_count in the shim's config", u.count)
}
