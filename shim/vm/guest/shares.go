package guest

import (
	"fmt"

	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/internal/budget"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// shares bound the streams to each pod and each namespace.
type shares struct{ namespaces, pods *budget.Budget }

func newShares() shares {
	return shares{
		namespaces: budget.New("streams", bounds.NodeStreams, bounds.NodeNamespaceStreams),
		pods:       budget.New("streams", bounds.NodeStreams, bounds.PodStreams),
	}
}

// begin counts a stream to a VM's pod until end is called.
func (s shares) begin(v *table.VM) (end func(), err error) {
	r := v.Record()
	namespace, pod := "namespace "+r.Sandbox.Value.GetMetadata().GetNamespace(), "pod "+table.PodName(r)
	if err := s.pods.Take(pod, 1); err != nil {
		return nil, fmt.Errorf("%w: %w", vmerrors.ErrBusy, err)
	}
	if err := s.namespaces.Take(namespace, 1); err != nil {
		s.pods.Release(pod, 1)
		return nil, fmt.Errorf("%w: %w", vmerrors.ErrBusy, err)
	}
	return func() {
		s.pods.Release(pod, 1)
		s.namespaces.Release(namespace, 1)
	}, nil
}
