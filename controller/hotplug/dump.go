package hotplug

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
)

// reasonFailedDump is the reason of an order for a memory dump that failed.
const reasonFailedDump = "FailedMemoryDump"

// dumpPause is the time between two questions about a dump. An order waits for its end, too.
const dumpPause = time.Second

// dumps reports whether the volume is for a memory dump.
func (v *volume) dumps() bool { return v.status.MemoryDumpVolume != nil }

// ready reports whether the VM has got the volume, or its memory has been dumped to it.
func (v *volume) ready() bool {
	switch v.status.Phase {
	case kubevirt.VolumeReady, kubevirt.MemoryDumpVolumeCompleted, kubevirt.MemoryDumpVolumeFailed:
		return true
	}
	return false
}

// dump has the node dump the guest's memory to what an attachment pod has mounted. The status
// names the file before.
//
//	MountedToPod ──▶ MemoryDumpInProgress ──▶ MemoryDumpCompleted, MemoryDumpFailed
func (w *work) dump(ctx context.Context, v *volume, container string) (time.Duration, error) {
	info := v.status.MemoryDumpVolume
	if v.status.Phase != kubevirt.MemoryDumpVolumeInProgress {
		v.status.Phase, v.status.Reason = kubevirt.MemoryDumpVolumeInProgress, reasonMounted
		v.status.Message = fmt.Sprintf("Memory dump Volume %s is attached, getting memory dump", v.name)
		*info = kubevirt.DomainMemoryDumpInfo{
			ClaimName:      info.ClaimName,
			TargetFileName: fmt.Sprintf("%s-%s-%s%s", w.vmi.Name, v.name, w.Now().UTC().Format("20060102-150405"), order.DumpSuffix),
		}
		if err := w.write(ctx, v); err != nil {
			return 0, err
		}
	}
	d, err := w.giveDump(ctx, v, order.MemoryDump, order.DumpFile{Volume: v.name, Container: container, File: info.TargetFileName})
	if err == nil && (d.State == order.DumpNone || d.File != info.TargetFileName) {
		err = fmt.Errorf("%s: the node has no such dump", order.MemoryDump)
	}
	if err != nil {
		v.status.Reason, v.status.Message = reasonFailedDump, err.Error()
		return retry, w.write(ctx, v)
	}
	info.StartTimestamp = timestamp(d.Start)
	switch d.State {
	case order.DumpWriting:
		return dumpPause, w.write(ctx, v)
	case order.DumpCompleted:
		v.status.Phase, v.status.Reason = kubevirt.MemoryDumpVolumeCompleted, reasonReady
		v.status.Message = fmt.Sprintf("Memory dump to Volume %s has completed successfully", v.name)
	default:
		v.status.Phase, v.status.Reason = kubevirt.MemoryDumpVolumeFailed, reasonFailedDump
		v.status.Message = fmt.Sprintf("Memory dump to pvc %s failed: %s", v.name, clip(d.Message))
	}
	info.EndTimestamp = timestamp(d.End)
	return 0, w.write(ctx, v)
}

// dumped reports whether the node has closed the volume of a dump.
func (w *work) dumped(ctx context.Context, v *volume) (bool, error) {
	d, err := w.giveDump(ctx, v, order.MemoryDumpStatus, order.Name{Name: v.name})
	if err != nil || d.State != order.DumpWriting {
		return err == nil, err
	}
	v.status.Phase, v.status.Reason = kubevirt.HotplugVolumeDetaching, reasonDetaching
	v.status.Message = fmt.Sprintf("Volume %s is being detached, until the guest's memory is written", v.name)
	return false, w.write(ctx, v)
}

// giveDump gives an order about a memory dump to the VM, and returns the node's answer.
func (w *work) giveDump(ctx context.Context, v *volume, name string, argument any) (order.Dump, error) {
	var d order.Dump
	text, err := w.ask(ctx, name, argument)
	if err != nil {
		return d, err
	}
	known := false
	if json.Unmarshal(text, &d) == nil && d.Volume == v.name {
		switch d.State {
		case order.DumpNone, order.DumpWriting, order.DumpCompleted, order.DumpFailed:
			known = true
		}
	}
	if !known {
		return order.Dump{}, fmt.Errorf("%s in pod %s on node %s: the answer is not about the dump to volume %s",
			name, w.own.Name, w.own.Spec.NodeName, v.name)
	}
	return d, nil
}

// timestamp returns a time as objects have it; nil for none.
func timestamp(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return new(metav1.NewTime(t.UTC().Truncate(time.Second)))
}
