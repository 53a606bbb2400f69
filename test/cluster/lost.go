package cluster

import (
	"fmt"
	"time"
)

// What LostAfter changes. Of itself Kubernetes waits for 50 s until a node counts as lost; see
// kubernetes.io/docs/concepts/architecture/nodes.

// missSoon are the controller manager's flags.
func (o Options) missSoon() []string {
	if o.LostAfter == 0 {
		return nil
	}
	return []string{"--node-monitor-period=1s", fmt.Sprintf("--node-monitor-grace-period=%s", o.LostAfter)}
}

// renewOften has a kubelet renew its lease at every tenth of LostAfter, so that one on a busy machine is
// not given up. It renews at a quarter of the lease's duration, which is of whole seconds.
func (o Options) renewOften(kubelet object) {
	if o.LostAfter > 0 {
		kubelet["nodeLeaseDurationSeconds"] = max(int(4*o.LostAfter/10/time.Second), 1)
	}
}
