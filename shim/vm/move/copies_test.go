package move_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/cgroup"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/record"
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
	for name, want := range map[string]string{"more": `the VM has no disk "more"`, "seed": errOther.Error()} {
		_, err := do[order.Identity](t, r, source, order.Identify, order.Departure{Migration: migration, Copied: []string{name}})
		wantError(t, err, want)
	}
	_, err := do[order.Identity](t, r, source, order.Identify, order.Departure{Migration: migration, Copied: make([]string, vmspec.MaxDisks+1)})
	wantError(t, err, "disks to copy, the limit is")
	r.groups.SetUse(c.ID, cgroup.Stats{RSS: 100 << 20, MemoryLimit: 125<<20 - 1}, 0)
	_, err = do[order.Identity](t, r, source, order.Identify, order.Departure{Migration: migration, Copied: []string{"data"}})
	wantError(t, err, "QEMU needs 25 MiB to copy 1 disks, and uses 100 MiB of at most 124")
	r.groups.SetUse(c.ID, cgroup.Stats{RSS: 100 << 20, MemoryLimit: 125 << 20}, 0)
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

// TestPluggedCopies: a disk that the guest has got since it runs becomes a copy if the target's order says so.
func TestPluggedCopies(t *testing.T) {
	r := newRig(t)
	source := r.vm(t, "a", "")
	r.guest(t, source, domain.ReasonNone)
	r.withDrive(t, source, func(c *record.Container) {
		disk := vmspec.Disk{Name: "data", Source: vmspec.SourcePVC, Bus: vmspec.BusSCSI, Target: "sdb"}
		c.Plugged = []record.PluggedDisk{{State: record.Attached, Order: scsi("data"), Disk: disk}}
	})
	migration := order.Migration{Migration: uid}
	id, err := do[order.Identity](t, r, source, order.Identify, order.Departure{Migration: migration, Copied: []string{"data"}})
	assert.NilError(t, err)
	assert.DeepEqual(t, id.Guest.Lengths, map[string]int64{"data": 512})

	r = newRig(t) // the other node
	r.hold("c", "data", "media")
	target := r.vm(t, "b", uid)
	r.withDrive(t, target)
	receive := func(lengths map[string]int64, copied ...string) error {
		t.Helper()
		guest := *id.Guest
		guest.Lengths, guest.Disks = lengths, map[string]string{"root": "sha256:1 /disk"}
		guest.Plugged = append(guest.Plugged, order.Plugged{Name: "media", Target: "sda", Disk: json.RawMessage(`{"name": "media", "cdrom": {"bus": "sata"}}`)})
		volumes := map[string]string{"data": strings.Repeat("c", 64), "media": strings.Repeat("c", 64)}
		_, err := do[order.Identity](t, r, target, order.Receive, order.Reception{
			Migration: migration, Source: id.Fingerprint, Guest: &guest, Volumes: volumes, Copied: copied})
		return err
	}
	wantError(t, receive(id.Guest.Lengths), `the source copies disk "data", for which the pod here has no PVC`)
	for _, name := range []string{"other", "media"} {
		wantError(t, receive(id.Guest.Lengths, name), `the guest has got no disk "`+name+`" on a volume that it alone writes`)
	}
	r.said()
	wantError(t, receive(nil, "data"), `the source does not copy disk "data": update nodevirt on its node`)
	assert.Equal(t, r.said(), "look at media, unplug data, unplug media")
	assert.Equal(t, len(target.Record().Plugged), 0)
	assert.NilError(t, receive(id.Guest.Lengths, "data"))
	got := target.Record()
	assert.Assert(t, got.Plugged[0].Disk.Copied && !got.Plugged[1].Disk.Copied)
	assert.Equal(t, got.Plugged[0].Content.Length, int64(512))
	assert.Equal(t, got.AsStarted().Disks["data"].Length, int64(512))
}
