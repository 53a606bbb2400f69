package save

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/move"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// check returns why a VM cannot be saved now. Held are its disks as of [Fits].
func check(r record.Container, held []string) error {
	if r.State != record.Running || r.Incoming != "" {
		return fmt.Errorf("%w: the VM does not run", vmerrors.ErrState)
	}
	if r.Freeze != nil {
		return fmt.Errorf("%w: the guest's file systems are frozen, and nothing would thaw them elsewhere: thaw them first", vmerrors.ErrState)
	}
	return Fits(r, held)
}

// Fits returns why a VM has no checkpoints: what its guest would miss elsewhere, or later. Held are
// the disks on PVCs whose content is saved together with the memory.
func Fits(r record.Container, held []string) error {
	why := move.Bound(r)
	if r.Spec.Hooks != nil {
		why = append(why, "it has hook sidecars: those of its next pod could make another VM of it")
	}
	if len(r.Plugged) > 0 {
		why = append(why, "it has got disks since it runs, which checkpoints do not support")
	}
	if len(r.Cards) > 0 {
		why = append(why, "it has got network cards since it runs, which checkpoints do not support")
	}
	if r.Spec.State != nil {
		why = append(why, "it has persistent state, which its guest changes after the checkpoint")
	}
	if r.Spec.TakesPodAddress() {
		why = append(why, "its card on the pod network has the binding bridge: the next pod has another address; use masquerade")
	}
	for _, d := range r.Spec.Disks {
		transfer, reason := d.Transfer()
		switch {
		case reason != "":
			why = append(why, fmt.Sprintf("disk %q %s", d.Name, reason))
		case transfer == vmspec.TransferRemade, transfer == vmspec.TransferCopied && !d.OnVolume():
		case transfer == vmspec.TransferShared && d.Source != vmspec.SourceHostDisk && slices.Contains(held, d.Name):
		default:
			why = append(why, fmt.Sprintf("disk %q is on a volume, whose content can change after the checkpoint", d.Name))
		}
	}
	if len(why) > 0 {
		return fmt.Errorf("%w: a VM like this one cannot be resumed from a checkpoint: %s", vmerrors.ErrInvalid, strings.Join(why, "; "))
	}
	return nil
}
