//go:build cluster && slow

package nodes

import (
	"testing"

	"gotest.tools/v3/assert"
)

// When a Node is deleted, its VMs run elsewhere; the node registers again when it boots.
func TestDeletedNode(t *testing.T) {
	whole(t)
	name, first := answering(t, vm("bereft", rather(harmed)))
	watchTwo(t)
	cut(t)
	waitFor(t, "vm/"+name, "jsonpath={.status.printableStatus}=Unknown")
	kubectl(t, "delete", "node", harmed)
	answer(t, name, first)
	assert.NilError(t, guestRuns(name))
	assert.NilError(t, suite.Boot(t.Context(), harmed))
	waitFor(t, "node/"+harmed, "condition=Ready")
	clean(t)
	assert.NilError(t, guestRuns(name))
}

// A node that crashed and boots again reports by itself what has ended.
func TestCrashedNode(t *testing.T) {
	whole(t)
	name, first := answering(t, vm("crashed", on(harmed)))
	watchTwo(t)
	cut(t)
	assert.NilError(t, suite.Boot(t.Context(), harmed))
	answer(t, name, first)
	assert.NilError(t, guestRuns(name))
}
