package nodelabels

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
)

// silence is how long the kubelet may be silent, such as for a restart. It asks for the runtime's status every five
// seconds.
const silence = time.Minute

// Kubelet notices whether the node's kubelet calls the shim. One whose CRI endpoint is another, as after a change of its
// arguments, still reports the node as ready, and VMs' pods that come there never start.
type Kubelet struct {
	socket string
	last   atomic.Pointer[time.Time]
}

// NewKubelet returns the kubelet that should call the shim's socket. It counts as heard now.
func NewKubelet(socket string) *Kubelet {
	k := &Kubelet{socket: socket}
	k.Hear()
	return k
}

// Hear notes a call.
func (k *Kubelet) Hear() {
	now := time.Now()
	k.last.Store(&now)
}

// Silent returns an error if the kubelet has not called for long.
func (k *Kubelet) Silent() error {
	if since := time.Since(*k.last.Load()); since > silence {
		return fmt.Errorf("the kubelet has not called %s for %s: set its CRI endpoint to unix://%[1]s, and restart it; nodevirt doctor shows "+
			"which one it has", k.socket, since.Round(time.Second))
	}
	return nil
}

// Source returns a source that also fails while the kubelet is silent.
func (k *Kubelet) Source(s Source) Source {
	return func(ctx context.Context) (domain.Capabilities, error) {
		if err := k.Silent(); err != nil {
			return domain.Capabilities{}, err
		}
		return s(ctx)
	}
}
