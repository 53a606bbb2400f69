package table

import (
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// users gives each VM a different user id, and its TPM another one.
type users struct {
	base, count uint32
	lost        map[uint32]bool
}

// free returns the n lowest user ids that no VM has.
func (u users) free(vms iter.Seq[*VM], n int) ([]uint32, error) {
	taken := map[uint32]bool{}
	for v := range vms {
		d := v.Record().Domain
		taken[d.UID], taken[d.TPMUID] = true, true
	}
	var all []uint32
	for i := range u.count {
		if uid := u.base + i; !taken[uid] && !u.lost[uid] {
			if all = append(all, uid); len(all) == n {
				return all, nil
			}
		}
	}
	return nil, fmt.Errorf("all %d user ids for VMs are taken: widen vm.uid_count in the shim's config", u.count)
}

// ReserveUsersInUse keeps user IDs from new VMs that processes have now. Call it if
// there is a container whose record cannot be used, and may not say its user ID: its
// guest must not share that with a new VM.
func (t *Table) ReserveUsersInUse() error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("find user ids in use: %w", err)
	}
	used := map[uint32]bool{}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		var st syscall.Stat_t
		if err := syscall.Stat(filepath.Join("/proc", e.Name()), &st); err != nil {
			continue // it ended
		}
		if st.Uid >= t.users.base && st.Uid-t.users.base < t.users.count {
			used[st.Uid] = true
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.users.lost = used
	return nil
}
