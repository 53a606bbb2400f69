package hotplug

import (
	"context"
	"fmt"
	"slices"
	"time"

	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
)

// detach takes the next step for a volume that the VM should not have. The attachment pod
// stays until the node has closed the volume.
func (w *work) detach(ctx context.Context, v *volume) (time.Duration, error) {
	pods := slices.Clone(v.former)
	if v.live != nil {
		pods = append(pods, *v.live)
	}
	touched := len(pods) > 0 || v.status.HotplugVolume.AttachPodUID != ""
	if touched && v.status.Phase != kubevirt.HotplugVolumeUnMounted {
		closed, err := w.close(ctx, v)
		if err != nil {
			v.status.Message = err.Error()
			return retry, w.write(ctx, v)
		}
		if !closed {
			return retry, nil
		}
		v.status.Phase, v.status.Reason, v.status.Target = kubevirt.HotplugVolumeUnMounted, reasonUnMounted, ""
		v.status.Message = fmt.Sprintf("Volume %s has been detached from the VM", v.name)
		if err := w.write(ctx, v); err != nil {
			return 0, err
		}
	}
	if err := w.deletePods(ctx, pods); err != nil {
		return 0, err
	}
	if len(pods) > 0 {
		return 0, nil // their events trigger the next step
	}
	return 0, w.drop(ctx, v)
}

// close has the node take a disk from the VM, and reports whether it has closed the volume.
// The node goes on to ask a guest that does not release the disk.
func (w *work) close(ctx context.Context, v *volume) (bool, error) {
	if v.dumps() {
		return w.dumped(ctx, v)
	}
	d, err := w.give(ctx, v, order.Status, order.Name{Name: v.name})
	if err != nil || d.State == order.None {
		return err == nil, err
	}
	if v.status.Phase != kubevirt.HotplugVolumeDetaching {
		v.status.Phase, v.status.Reason = kubevirt.HotplugVolumeDetaching, reasonDetaching
		v.status.Message = fmt.Sprintf("Volume %s is being detached, until the guest releases it", v.name)
		if err := w.write(ctx, v); err != nil {
			return false, err
		}
	}
	if d.State != order.Detaching {
		d, err = w.give(ctx, v, order.Detach, order.Name{Name: v.name})
	}
	return err == nil && d.State == order.None, err
}
