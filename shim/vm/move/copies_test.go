package move_test

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestCopies: both ends must know which disks are copied to other PVCs.
func TestCopies(t *testing.T) {
	r := newRig(t)
	disks := []vmspec.Disk{{Name: "data", Source: vmspec.SourcePVC, Target: "vda"}, {Name: "seed", Source: vmspec.SourceSeed, Target: "vdb"}}
	source := r.vm(t, "a", "")
	c := source.Record()
	c.Spec.Disks = disks
	source.Publish(c)
	r.guest(t, source, domain.ReasonNone)
	migration := order.Migration{Migration: uid}
	for name, want := range map[string]string{"more": `the VM did not start with a disk "more"`, "seed": errOther.Error()} {
		_, err := do[order.Identity](t, r, source, order.Identify, order.Departure{Migration: migration, Copied: []string{name}})
		wantError(t, err, want)
	}
	_, err := do[order.Identity](t, r, source, order.Identify, order.Departure{Migration: migration, Copied: make([]string, vmspec.MaxDisks+1)})
	wantError(t, err, "disks to copy, the limit is")
	id, err := do[order.Identity](t, r, source, order.Identify, order.Departure{Migration: migration, Copied: []string{"data"}})
	assert.NilError(t, err)
	assert.DeepEqual(t, id.Guest.Lengths, map[string]int64{"data": 512})

	r = newRig(t) // the other node
	target := r.vm(t, "b", uid)
	receive := func(copied bool, lengths map[string]int64) error {
		t.Helper()
		c := target.Record()
		c.Spec.Disks = slices.Clone(disks)
		c.Spec.Disks[0].Copied = copied
		target.Publish(c)
		guest := *id.Guest
		guest.Lengths = lengths
		_, err := do[order.Identity](t, r, target, order.Receive, order.Reception{Migration: migration, Source: id.Fingerprint, Guest: &guest})
		return err
	}
	wantError(t, receive(false, id.Guest.Lengths), `the source copies disk "data", for which the pod here has no PVC`)
	wantError(t, receive(true, nil), `the source does not copy disk "data": update nodevirt on its node`)
	r.other = "data"
	wantError(t, receive(true, id.Guest.Lengths), errOther.Error())
	r.other = ""
	err = receive(true, id.Guest.Lengths)
	if got := target.Record().Disks["data"].Length; got != 512 {
		t.Errorf("the record has a length of %d: %v", got, err)
	}
	if slices.Contains(r.calls, "look at data") {
		t.Error("the target looks for the file of the guest's")
	}
}
