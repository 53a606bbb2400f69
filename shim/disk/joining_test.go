package disk

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nodevirt/nodevirt/shim/record"
)

// recorded are cgroups that record what is done to them.
type recorded struct {
	calls []string
	fail  error // of Create
}

func (r *recorded) Create(c record.Container) error {
	r.calls = append(r.calls, "create "+c.ID)
	return r.fail
}

func (r *recorded) Add(c record.Container, pid int) error {
	r.calls = append(r.calls, fmt.Sprintf("add %d to %s", pid, c.ID))
	return nil
}

// TestConversionsJoin: a conversion works in its VM's cgroup, or not at all.
func TestConversionsJoin(t *testing.T) {
	groups, k := &recorded{}, Disk{VM: record.Container{ID: "vm"}}
	if err := joining(groups, k)(7); err != nil || !slices.Equal(groups.calls, []string{"create vm", "add 7 to vm"}) {
		t.Errorf("%q, %v", groups.calls, err)
	}
	groups = &recorded{fail: errors.New("no memory for it")}
	if err := joining(groups, k)(7); !errors.Is(err, groups.fail) || len(groups.calls) != 1 {
		t.Errorf("without a cgroup: %q, %v", groups.calls, err)
	}
}
