//go:build cluster && slow

package nodes

import "testing"

// A Node that is deleted is gone, and its VMs run elsewhere; the machine registers anew when it boots.
func TestDeletedNode(t *testing.T) {
	whole(t)
	name, first := answering(t, vm("bereft", rather(harmed)))
	watchTwo(t)
	cut(t)
	waitFor(t, "vm/"+name, "jsonpath={.status.printableStatus}=Unknown")
	kubectl(t, "delete", "node", harmed)
	answer(t, name, first)
	check(t, guestRuns(name))
	check(t, suite.Boot(t.Context(), harmed))
	waitFor(t, "node/"+harmed, "condition=Ready")
	clean(t)
	check(t, guestRuns(name))
}

// A machine that crashed and boots again tells itself what has ended.
func TestCrashedNode(t *testing.T) {
	whole(t)
	name, first := answering(t, vm("crashed", on(harmed)))
	watchTwo(t)
	cut(t)
	check(t, suite.Boot(t.Context(), harmed))
	answer(t, name, first)
	check(t, guestRuns(name))
}
