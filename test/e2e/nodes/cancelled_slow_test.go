//go:build cluster && slow

package nodes

import (
	"testing"
)

// user deletes all migrations.
var user = part{
	name: "the user", cancels: true, repair: nothing,
	harm: func(t *testing.T, _, _ string) { kubectl(t, "delete", "vmim", "--all", "--wait=false") },
}

// TestCancelledMigrations deletes a migration at each of its steps. One guest runs afterwards, on the node that the
// API names, with its disk; and nothing else is left. Those that are deleted early do not move the guest.
func TestCancelledMigrations(t *testing.T) {
	whole(t)
	m := newMover(t, "cancelled")
	watchRunning(t)
	stayed := 0
	for _, step := range steps {
		before := m.at
		if !t.Run(string(step), func(t *testing.T) { m.breaks(t, user, step, 0) }) {
			return
		}
		if m.at == before {
			stayed++
		}
	}
	t.Logf("of %d migrations, %d left the guest on its node", len(steps), stayed)
	cleanNode(t, other(m.at))
	if stayed == 0 {
		t.Error("all cancelled migrations moved the guest")
	}
}
