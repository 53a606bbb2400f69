package lifecycle

import (
	"fmt"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// reopenLog opens a running container's log again, after its rotation.
func reopenLog(consoles Consoles, v *table.VM) error {
	r := v.Record()
	if r.State != record.Running {
		return fmt.Errorf("reopen the log of container %q: container is not running", r.ID)
	}
	return consoles.Reopen(r.ID)
}
