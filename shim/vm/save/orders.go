package save

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodevirt/nodevirt/shim/vm/attachment"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/control"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// maxDisks bounds the disks that an order names.
const maxDisks = 256

// Controls returns the names of the machine controls that save memory to volumes.
func Controls() []string { return []string{order.MemorySave, order.MemorySaveEnd} }

// Do carries out a machine control with its argument, and returns its answer.
func (s *Saves) Do(ctx context.Context, v *table.VM, name, argument string) ([]byte, error) {
	switch name {
	case order.MemorySave:
		return control.Answer(ctx, v, argument, s.save)
	case order.MemorySaveEnd:
		return control.Answer(ctx, v, argument, func(ctx context.Context, v *table.VM, a order.Name) (order.Saved, error) {
			return s.jobs.Of(v).release(ctx, a.Name)
		})
	}
	return nil, fmt.Errorf("%w: there is no control %q of saves", vmerrors.ErrInvalid, name)
}

// save begins a save, or holds the guest of one that is under way, and waits a little for the next
// state.
func (s *Saves) save(ctx context.Context, v *table.VM, a order.Save) (order.Saved, error) {
	if len(validation.IsDNS1123Label(a.Volume)) > 0 || len(a.Disks) > maxDisks {
		return order.Saved{}, fmt.Errorf("%w: %.80q is not the name of a volume, or there are more than %d disks", vmerrors.ErrInvalid, a.Volume, maxDisks)
	}
	j := s.jobs.Of(v)
	if j.renew(a.Volume) || !a.Begin {
		return j.await(ctx, a.Volume, order.SaveWriting)
	}
	if a.Suspend {
		a.Disks = onVolumes(v.Record())
	}
	if err := check(v.Record(), a.Disks); err != nil {
		return order.Saved{}, err
	}
	if s.volumes.Of(v).Busy() || s.removals.Of(v).Busy() {
		return order.Saved{}, fmt.Errorf("%w: an access of an earlier save has not ended: %w", vmerrors.ErrState, background.ErrVolume)
	}
	config, err := attachment.Find(ctx, s.o.Pods, v.Record(), a.Container)
	if err != nil {
		return order.Saved{}, err
	}
	folder, err := vmspec.Folder(a.Volume, config)
	if err != nil {
		return order.Saved{}, fmt.Errorf("%w: %w", vmerrors.ErrInvalid, err)
	}
	if err := j.begin(s.o.Tasks.Context(), a); err != nil { //nolint:contextcheck // the save outlasts the order
		return order.Saved{}, err
	}
	s.o.Tasks.Run(func(context.Context) { s.toVolume(v, j, folder) }) //nolint:contextcheck // its context is the job's
	return j.await(ctx, a.Volume, order.SaveWriting)
}
