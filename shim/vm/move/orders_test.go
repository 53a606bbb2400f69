package move_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate/handover"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/uefi"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestIdentify: the answer is the same again, and one migration follows another.
func TestIdentify(t *testing.T) {
	r := newRig(t)
	v := r.vm(t, "a", "")
	r.guest(t, v, domain.ReasonUser)
	_, err := do[order.Identity](t, r, v, order.Identify, order.Migration{Migration: uid})
	wantError(t, err, "the guest is paused")
	if err := r.libvirt.Lifecycle.Resume(t.Context(), vmID); err != nil {
		t.Fatal(err)
	}
	first, err := do[order.Identity](t, r, v, order.Identify, order.Migration{Migration: uid})
	if err != nil || first.Guest == nil || first.Guest.UUID != vmID || first.Guest.Disks["root"] != "sha256:1 /disk" {
		t.Fatalf("%+v, %v", first, err)
	}
	again, err := do[order.Identity](t, r, v, order.Identify, order.Migration{Migration: uid})
	if err != nil || again.Fingerprint != first.Fingerprint {
		t.Errorf("another identity: %+v, %v", again, err)
	}
	if next, err := do[order.Identity](t, r, v, order.Identify, order.Migration{Migration: other}); err != nil || next.Fingerprint == first.Fingerprint {
		t.Errorf("the next migration: %+v, %v", next, err)
	}
	_, err = do[order.Report](t, r, v, order.Send, order.Sending{Migration: order.Migration{Migration: uid}})
	wantError(t, err, "has no certificate here")
	for _, control := range []string{order.Status, order.Cancel} {
		if s, err := do[order.Report](t, r, v, control, order.Migration{Migration: uid}); err != nil || s.State != "" || s.Migration.Migration != uid {
			t.Errorf("%s of an unknown migration: %+v, %v", control, s, err)
		}
	}
	_, err = do[order.Identity](t, r, v, order.Identify, order.Migration{Migration: "../x"})
	wantError(t, err, "is not a migration's UID")
	if !r.MayResume(v) || r.left(v) {
		t.Error("the guest is not this node's")
	}
	_, err = do[order.Identity](t, r, r.vm(t, "b", uid), order.Identify, order.Migration{Migration: uid})
	wantError(t, err, "the VM does not run")
}

// TestReceiveOnVolume: a guest's disk on a volume began as an image, which its next pod does not need.
func TestReceiveOnVolume(t *testing.T) {
	r := newRig(t)
	v := r.vm(t, "b", uid)
	wanted := order.Reception{
		Migration: order.Migration{Migration: uid}, Source: strings.Repeat("ab", 32),
		Guest: &order.Guest{UUID: vmID, Disks: map[string]string{"root": "sha256:1 /disk", "data": "sha256:2 /disk"}},
	}
	_, err := do[order.Identity](t, r, v, order.Receive, wanted)
	wantError(t, err, "the VM has 1 disks of images here and 2 on the source")
	if err := r.change(t.Context(), v, func(c *record.Container) {
		c.Spec.Disks = []vmspec.Disk{{Name: "data", Source: vmspec.SourcePVC}}
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := do[order.Identity](t, r, v, order.Receive, wanted); err != nil {
		t.Error(err)
	}
}

// TestReceive: a container that waits takes the identity of its guest, and listens until it is stopped.
func TestReceive(t *testing.T) {
	r := newRig(t)
	v := r.vm(t, "b", uid)
	fingerprint := strings.Repeat("ab", 32)
	wanted := order.Reception{
		Migration: order.Migration{Migration: uid}, Source: fingerprint,
		Guest: &order.Guest{UUID: vmID, Disks: map[string]string{"root": "sha256:1 /disk"}},
	}
	for words, change := range map[string]func(*order.Reception){
		"names no guest":                          func(a *order.Reception) { a.Guest = nil },
		"guest: invalid UUID":                     func(a *order.Reception) { a.Guest = &order.Guest{UUID: "x"} },
		"source: fingerprint":                     func(a *order.Reception) { a.Source = "x" },
		"waits for the guest of migration " + uid: func(a *order.Reception) { a.Migration.Migration = other },
		"the image's tag has changed":             func(a *order.Reception) { a.Guest = &order.Guest{UUID: vmID} },
		"the UEFI firmware is missing here and 1 and 2 bytes, with system management mode: false on the source": func(a *order.Reception) {
			a.Guest = &order.Guest{UUID: vmID, Disks: a.Guest.Disks, Firmware: &order.Firmware{Code: 1, Variables: 2}}
		},
		`the nodes' differ: "" here and "AMD" on the source`: func(a *order.Reception) {
			a.Guest = &order.Guest{UUID: vmID, Disks: a.Guest.Disks, CPU: "AMD"}
		},
	} {
		a := wanted
		change(&a)
		_, err := do[order.Identity](t, r, v, order.Receive, a)
		wantError(t, err, words)
	}
	if s, err := do[order.Report](t, r, v, order.Status, order.Migration{Migration: uid}); err != nil || s.State != string(handover.Incoming) {
		t.Errorf("before: %+v, %v", s, err)
	}
	former := r.vm(t, "a", "")
	_, err := do[order.Identity](t, r, v, order.Receive, wanted)
	wantError(t, err, "on this node has the same VM")
	if err := r.change(t.Context(), former, func(c *record.Container) { c.State = record.Exited }); err != nil {
		t.Fatal(err)
	}
	first, err := do[order.Identity](t, r, v, order.Receive, wanted)
	if err != nil || first.Address == "" || first.Guest != nil || v.Record().Domain.UUID != vmID {
		t.Fatalf("%+v, %v, %+v", first, err, v.Record().Domain)
	}
	if again, err := do[order.Identity](t, r, v, order.Receive, wanted); err != nil || again != first {
		t.Errorf("again: %+v, %v; was %+v", again, err, first)
	}
	another := wanted
	another.Source = strings.Repeat("cd", 32)
	_, err = do[order.Identity](t, r, v, order.Receive, another)
	wantError(t, err, "expects another source")
	if r.MayResume(v) {
		t.Error("a guest that is still to come may be resumed")
	}
	if s, err := do[order.Report](t, r, v, order.Cancel, order.Migration{Migration: uid}); err != nil || s.State != string(handover.Refused) || !s.Ended {
		t.Errorf("cancelled: %+v, %v", s, err)
	}
	if got := r.said(); got != "attach, refuse: the migration was cancelled" || v.Record().State != record.Exited {
		t.Errorf("calls: %s; %s", got, v.Record().State)
	}
}

// TestReceiveHooks: the sidecars of the next pod make the domain as those of the former did, or the guest stays.
func TestReceiveHooks(t *testing.T) {
	r := newRig(t)
	v := r.vm(t, "b", uid)
	assert.NilError(t, r.change(t.Context(), v, func(c *record.Container) { c.Spec.Hooks = &vmspec.Hooks{} }))
	wanted := order.Reception{
		Migration: order.Migration{Migration: uid}, Source: strings.Repeat("ab", 32),
		Guest: &order.Guest{UUID: vmID, Disks: map[string]string{"root": "sha256:1 /disk"}},
	}
	const call = "Hooks.OnDefineDomain"
	r.script.FailOnce(call, errors.New("silent"))
	_, err := do[order.Identity](t, r, v, order.Receive, wanted)
	wantError(t, err, "silent")
	if _, err := do[order.Identity](t, r, v, order.Receive, wanted); err != nil || r.script.Count(call) != 2 {
		t.Errorf("%v, %v", err, r.script.Calls())
	}
}

// TestReceiveFiles: a guest comes only where its files on PVCs are found, and the answer says so.
func TestReceiveFiles(t *testing.T) {
	r := newRig(t)
	v := r.vm(t, "b", uid)
	assert.NilError(t, r.change(t.Context(), v, func(c *record.Container) {
		c.Spec.Disks = append(c.Spec.Disks, vmspec.Disk{Name: "file", Source: vmspec.SourcePVC, Target: "vdb"},
			vmspec.Disk{Name: "device", Source: vmspec.SourcePVC, Target: "vdc", Block: true})
	}))
	wanted := order.Reception{
		Migration: order.Migration{Migration: uid}, Source: strings.Repeat("ab", 32),
		Guest: &order.Guest{UUID: vmID, Disks: map[string]string{"root": "sha256:1 /disk"}},
	}
	r.other = "file"
	_, err := do[order.Identity](t, r, v, order.Receive, wanted)
	wantError(t, err, errOther.Error())
	r.other = ""
	r.said()
	got, err := do[order.Identity](t, r, v, order.Receive, wanted)
	assert.NilError(t, err)
	assert.Assert(t, got.Files)
	assert.Equal(t, r.said(), "look at file, attach")
}

// TestReceiveCards: a guest comes only where its bridged cards have the same addresses.
func TestReceiveCards(t *testing.T) {
	r := newRig(t)
	v := r.vm(t, "b", uid)
	bridged := func(c *record.Container) {
		c.Network = &netsetup.Plan{NICs: []netsetup.NIC{
			{Card: "default", Binding: netsetup.Masquerade, GuestMAC: netsetup.MAC{2, 0, 0, 0, 0, 1}},
			{
				Card: "lan", Binding: netsetup.Bridge, GuestMAC: netsetup.MAC{2, 0, 0, 0, 0, 2},
				IPv4: netsetup.Addressing{Address: netip.MustParsePrefix("10.0.0.2/24")},
			},
		}}
	}
	if err := r.change(t.Context(), v, bridged); err != nil {
		t.Fatal(err)
	}
	wanted := order.Reception{
		Migration: order.Migration{Migration: uid}, Source: strings.Repeat("ab", 32),
		Guest: &order.Guest{UUID: vmID, Disks: map[string]string{"root": "sha256:1 /disk"}},
	}
	for words, cards := range map[string]map[string]string{
		`card "lan" has the addresses 02:00:00:00:00:02 10.0.0.2 here and "" on`:                           nil,
		`card "lan" has the addresses 02:00:00:00:00:02 10.0.0.2 here and "02:00:00:00:00:02 10.0.0.3" on`: {"lan": "02:00:00:00:00:02 10.0.0.3"},
		"1 network cards with the binding bridge here and 2 on":                                            {"lan": "02:00:00:00:00:02 10.0.0.2", "wan": "x"},
	} {
		wanted.Guest.Cards = cards
		_, err := do[order.Identity](t, r, v, order.Receive, wanted)
		wantError(t, err, words)
	}
	wanted.Guest.Cards = map[string]string{"lan": "02:00:00:00:00:02 10.0.0.2"}
	if _, err := do[order.Identity](t, r, v, order.Receive, wanted); err != nil {
		t.Error(err)
	}
	from := newRig(t)
	v = from.vm(t, "a", "")
	if err := from.change(t.Context(), v, bridged); err != nil {
		t.Fatal(err)
	}
	from.guest(t, v, domain.ReasonNone)
	source, err := do[order.Identity](t, from, v, order.Identify, order.Migration{Migration: uid})
	if err != nil || len(source.Guest.Cards) != 1 || source.Guest.Cards["lan"] != wanted.Guest.Cards["lan"] {
		t.Errorf("the source: %+v, %v", source.Guest, err)
	}
}

// TestReceiveMTUs: a guest keeps the MTUs of its cards, unless its network would lose packets.
func TestReceiveMTUs(t *testing.T) {
	for name, tt := range map[string]struct {
		theirs map[string]int
		want   []int
		words  string
	}{
		"the same":               {theirs: map[string]int{"default": 1400, "lan": 1500}, want: []int{1400, 1500}},
		"an older source":        {want: []int{1400, 1500}},
		"less than the networks": {theirs: map[string]int{"default": 1300, "lan": 1400}, want: []int{1300, 1400}},
		"more behind NAT":        {theirs: map[string]int{"default": 9001, "lan": 1500}, want: []int{9001, 1500}},
		"more than its network":  {theirs: map[string]int{"default": 1400, "lan": 9001}, words: `card "lan" has an MTU of 9001 bytes, and its network carries 1500 here`},
		"none":                   {theirs: map[string]int{"default": -1}, words: `"default" has an MTU of -1`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			v := r.vm(t, "b", uid)
			cards := func(c *record.Container) {
				c.Network = &netsetup.Plan{NICs: []netsetup.NIC{
					{Card: "default", Binding: netsetup.Masquerade, MTU: 1400}, {Card: "lan", Binding: netsetup.Bridge, GuestMAC: netsetup.MAC{2, 0, 0, 0, 0, 2}, MTU: 1500},
				}}
			}
			assert.NilError(t, r.change(t.Context(), v, cards))
			_, err := do[order.Identity](t, r, v, order.Receive, order.Reception{
				Migration: order.Migration{Migration: uid}, Source: strings.Repeat("ab", 32),
				Guest: &order.Guest{
					UUID: vmID, Disks: map[string]string{"root": "sha256:1 /disk"}, Cards: map[string]string{"lan": "02:00:00:00:00:02"}, MTUs: tt.theirs,
				},
			})
			if tt.words != "" {
				wantError(t, err, tt.words)
				return
			}
			assert.NilError(t, err)
			n := v.Record().Network.NICs
			assert.DeepEqual(t, []int{n[0].MTU, n[1].MTU}, tt.want)
		})
	}
}

// left reports whether a VM's guest has left for another node.
func (r *rig) left(v *table.VM) bool {
	d, ok := r.Departure(v)
	return ok && !d.Unanswered
}

// TestWhereItWent: the record of a source says where the guest may be, also to the next shim.
func TestWhereItWent(t *testing.T) {
	r := newRig(t)
	v := r.sends(t, order.Sending{Node: "node-b"})
	if d, ok := r.Departure(v); ok {
		t.Errorf("while it is copied: %+v", d)
	}
	if _, err := do[order.Report](t, r, v, order.Cancel, order.Migration{Migration: uid}); err != nil {
		t.Fatal(err)
	}
	file := handover.NewFile(r.layout.Folder(v.Record().ID))
	var rec handover.Record
	until(t, func() bool {
		var err error
		rec, _, err = file.Get()
		return err == nil && rec.Ended
	})
	if rec.Peer != "node-b" {
		t.Fatalf("%+v", rec)
	}
	for state, want := range map[handover.State]condition.Departure{
		handover.Kept:       {},
		handover.HandedOver: {Node: "node-b", Migration: uid, Unanswered: true},
		handover.Left:       {Node: "node-b", Migration: uid},
	} {
		rec.State = state
		if err := file.Put(rec); err != nil {
			t.Fatal(err)
		}
		r.Recover(v)
		if d, ok := r.Departure(v); ok != (want.Node != "") || ok && d != want {
			t.Errorf("%s: %+v, %t", state, d, ok)
		}
	}
}

// TestProgress: libvirt's figures are known while the guest is copied, and no longer.
func TestProgress(t *testing.T) {
	r := newRig(t)
	v := r.sends(t, order.Sending{})
	until(t, func() bool { return r.Progress(v) != nil })
	if p := r.Progress(v); p.Total != 30 || p.Processed != 20 || p.Remaining != 10 {
		t.Errorf("%+v", p)
	}
	if s, err := do[order.Report](t, r, v, order.Status, order.Migration{Migration: uid}); err != nil || s.Total != 30 || s.Remaining != 10 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := do[order.Report](t, r, v, order.Cancel, order.Migration{Migration: uid}); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return r.Progress(v) == nil })
}

// TestPauses: a guest whose copy takes too long is paused if the order says so, and the copy has as much time again.
// The guest goes on if that is not enough. One that QEMU can't copy while it runs is paused from the start.
func TestPauses(t *testing.T) {
	for name, tt := range map[string]struct {
		live, pause bool
		disks       uint64
		want        string
		limit       time.Duration
	}{
		"not asked for":             {live: true, limit: time.Second},
		"not asked for, with disks": {live: true, disks: 2 << 30, limit: 3 * time.Second},
		"asked for":                 {live: true, pause: true, want: "pause", limit: 2 * time.Second},
		"paused from the beginning": {pause: true, limit: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.live, r.diskBytes = tt.live, tt.disks
			v := r.sends(t, order.Sending{PerGiB: time.Second, Timeout: time.Millisecond, Pause: tt.pause})
			var report order.Report
			var err error
			until(t, func() bool {
				report, err = do[order.Report](t, r, v, order.Status, order.Migration{Migration: uid})
				return err != nil || report.Ended
			})
			paused := !tt.live || tt.pause
			if err != nil || report.Paused != paused || !strings.Contains(report.Reason, "the copy took more than "+tt.limit.String()+" and has been aborted") {
				t.Errorf("%+v, %v", report, err)
			}
			if got := r.said(); !strings.HasPrefix(got, tt.want) || strings.Contains(got, "pause") != (tt.want != "") {
				t.Errorf("calls: %s", got)
			}
			if got := r.libvirt.Status(vmID); got != domain.StatusRunning {
				t.Errorf("the guest is %s", got)
			}
		})
	}
}

// sends orders a VM to move to a target that never answers.
func (r *rig) sends(t *testing.T, s order.Sending) *table.VM {
	t.Helper()
	v := r.vm(t, "a", "")
	r.guest(t, v, domain.ReasonNone)
	s.Migration = order.Migration{Migration: uid}
	if _, err := do[order.Identity](t, r, v, order.Identify, s.Migration); err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	s.Target = order.Identity{Fingerprint: strings.Repeat("ab", 32), Address: silent.Addr().String()}
	if _, err := do[order.Report](t, r, v, order.Send, s); err != nil {
		t.Fatal(err)
	}
	return v
}

func until(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it takes too long")
		}
	}
}

// TestSendExcludes: what excludes a move and begins while the source looks at the VM waits for its turn, and finds
// that the VM moves; what has begun before the look has the order refused.
func TestSendExcludes(t *testing.T) {
	r := newRig(t)
	v := r.vm(t, "a", "")
	r.guest(t, v, domain.ReasonNone)
	m := order.Migration{Migration: uid}
	if _, err := do[order.Identity](t, r, v, order.Identify, m); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan bool, 1)
	r.looks = func() {
		go func() { // a backup begins
			unlock, err := v.Lock(context.Background())
			if err == nil {
				defer unlock()
			}
			waiting <- r.Moving(v)
		}()
		until(t, v.Awaited)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	send := order.Sending{Migration: m, Target: order.Identity{Fingerprint: strings.Repeat("ab", 32), Address: silent.Addr().String()}}
	busy := v.Record()
	v.Publish(busy.WithBackup(record.Backup{State: record.BackupWriting}))
	_, err = do[order.Report](t, r, v, order.Send, send)
	wantError(t, err, "its disks are being backed up")
	v.Publish(busy)
	if _, err := do[order.Report](t, r, v, order.Send, send); err != nil {
		t.Fatal(err)
	}
	if moves := <-waiting; !moves {
		t.Error("a backup could begin while the VM was about to move")
	}
}

// TestSourceAnnounces: the source announces its guest when a target's pod has been made, and again when the guest
// has stayed.
func TestSourceAnnounces(t *testing.T) {
	r := newRig(t)
	v := r.sends(t, order.Sending{})
	announced := func() []bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.Clone(r.announced)
	}
	assert.DeepEqual(t, announced(), []bool{true, true})
	if _, err := do[order.Report](t, r, v, order.Cancel, order.Migration{Migration: uid}); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return len(announced()) == 3 })
	assert.Assert(t, announced()[2])
}

// TestSourceAnnouncesAfterACancel: the source announces its guest when a migration ends before its copy has begun: the target's
// pod, which CNI has announced, may never have been ready.
func TestSourceAnnouncesAfterACancel(t *testing.T) {
	for identified, want := range map[bool][]bool{false: {true}, true: {true, true}} {
		r := newRig(t)
		v := r.vm(t, "a", "")
		r.guest(t, v, domain.ReasonNone)
		if identified {
			if _, err := do[order.Identity](t, r, v, order.Identify, order.Migration{Migration: uid}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := do[order.Report](t, r, v, order.Cancel, order.Migration{Migration: uid}); err != nil {
			t.Fatal(err)
		}
		r.mu.Lock()
		got := slices.Clone(r.announced)
		r.mu.Unlock()
		assert.DeepEqual(t, got, want)
	}
}

// TestEndBeforeTheOrder: a container that waits and got no order can be stopped.
func TestEndBeforeTheOrder(t *testing.T) {
	r := newRig(t)
	v := r.vm(t, "b", uid)
	if err := r.End(t.Context(), v, "stopped"); err != nil || r.said() != "refuse: stopped" {
		t.Error(err)
	}
	_, err := do[order.Identity](t, r, v, order.Receive, order.Reception{
		Migration: order.Migration{Migration: uid}, Source: strings.Repeat("ab", 32), Guest: &order.Guest{UUID: vmID},
	})
	wantError(t, err, "does not wait for a guest")
}

// TestSameFirmware: the firmware of both nodes must be of the same size.
func TestSameFirmware(t *testing.T) {
	r := newRig(t)
	files := func(v *table.VM, code, variables int) {
		c := v.Record()
		dir := t.TempDir()
		c.Firmware = &uefi.Firmware{Code: filepath.Join(dir, "code"), Variables: filepath.Join(dir, "variables")}
		if err := errors.Join(os.WriteFile(c.Firmware.Code, make([]byte, code), 0o600), os.WriteFile(c.Firmware.Variables, make([]byte, variables), 0o600)); err != nil {
			t.Fatal(err)
		}
		v.Publish(c)
	}
	source, target := r.vm(t, "a", ""), r.vm(t, "b", uid)
	r.guest(t, source, domain.ReasonNone)
	files(source, 4096, 512)
	id, err := do[order.Identity](t, r, source, order.Identify, order.Migration{Migration: uid})
	if err != nil || id.Guest.Firmware == nil || *id.Guest.Firmware != (order.Firmware{Code: 4096, Variables: 512}) {
		t.Fatalf("%+v, %v", id.Guest, err)
	}
	if err := r.change(t.Context(), source, func(c *record.Container) { c.State = record.Exited }); err != nil {
		t.Fatal(err)
	}
	receive := order.Reception{Migration: order.Migration{Migration: uid}, Source: id.Fingerprint, Guest: id.Guest}
	files(target, 4096, 1024)
	_, err = do[order.Identity](t, r, target, order.Receive, receive)
	wantError(t, err, "install the same on both nodes")
	files(target, 4096, 512)
	if _, err := do[order.Identity](t, r, target, order.Receive, receive); err != nil {
		t.Error(err)
	}
}

// TestSameCPU: a guest that has all of its node's CPU moves to an equal one alone, and one
// with a named model to any.
func TestSameCPU(t *testing.T) {
	r := newRigOn(t, domain.KVM)
	v := r.vm(t, "a", "")
	r.guest(t, v, domain.ReasonNone)
	for i, tt := range []struct{ model, want string }{{"", "Intel 6/85/7"}, {"host-passthrough", "Intel 6/85/7"}, {"host-model", ""}, {"EPYC", ""}} {
		c := v.Record()
		c.Spec.CPU.Model = tt.model
		v.Publish(c)
		id, err := do[order.Identity](t, r, v, order.Identify, order.Migration{Migration: fmt.Sprint("m", i)})
		if err != nil || id.Guest.CPU != tt.want {
			t.Errorf("%q: %+v, %v", tt.model, id.Guest, err)
		}
	}
	if err := r.change(t.Context(), v, func(c *record.Container) { c.State = record.Exited }); err != nil {
		t.Fatal(err)
	}
	target := r.vm(t, "b", uid)
	receive := order.Reception{Migration: order.Migration{Migration: uid}, Source: strings.Repeat("ab", 32), Guest: &order.Guest{
		UUID: vmID, Disks: map[string]string{"root": "sha256:1 /disk"}, CPU: "Intel 6/79/1",
	}}
	_, err := do[order.Identity](t, r, target, order.Receive, receive)
	wantError(t, err, "name a model in spec.domain.cpu.model")
	receive.Guest.CPU = "Intel 6/85/7"
	if _, err := do[order.Identity](t, r, target, order.Receive, receive); err != nil {
		t.Error(err)
	}
}
