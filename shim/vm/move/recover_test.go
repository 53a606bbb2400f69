package move_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate/handover"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
)

// TestRecoverSource has each state in which a shim that restarts finds a source.
func TestRecoverSource(t *testing.T) {
	for name, tt := range map[string]struct {
		state     handover.State
		ended     bool
		paused    domain.Reason
		want      handover.State
		status    domain.Status
		mayResume bool
	}{
		"sending":                         {state: handover.Sending, want: handover.Kept, status: domain.StatusRunning, mayResume: true},
		"sending, stopped by libvirt":     {state: handover.Sending, paused: domain.ReasonMigrated, want: handover.Kept, status: domain.StatusRunning, mayResume: true},
		"handed over":                     {state: handover.HandedOver, paused: domain.ReasonMigrated, want: handover.HandedOver, status: domain.StatusPaused},
		"handed over, resumed by refusal": {state: handover.HandedOver, want: handover.Kept, status: domain.StatusRunning, mayResume: true},
		"kept":                            {state: handover.Kept, paused: domain.ReasonMigrated, want: handover.Kept, status: domain.StatusRunning, mayResume: true},
		"left":                            {state: handover.Left, paused: domain.ReasonMigrated, want: handover.Left, status: domain.StatusShutoff},
		"kept, ended":                     {state: handover.Kept, ended: true, paused: domain.ReasonUser, want: handover.Kept, status: domain.StatusPaused, mayResume: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				v := r.vm(t, "a", "")
				r.guest(t, v, tt.paused)
				r.put(t, v, tt.state, tt.ended)
				r.Recover(v)
				may := r.MayResume(v)
				s, err := do[order.Report](t, r, v, order.Status, order.Migration{Migration: uid})
				if err != nil || may && s.State != string(handover.Kept) {
					t.Errorf("the guest may be resumed before it is known whose it is: %+v, %v", s, err)
				}
				time.Sleep(time.Minute)
				s, err = do[order.Report](t, r, v, order.Status, order.Migration{Migration: uid})
				if err != nil || s.State != string(tt.want) || s.Unsettled != (tt.want == handover.HandedOver) || s.Ended == s.Unsettled {
					t.Errorf("%+v, %v", s, err)
				}
				if got := r.libvirt.Status(vmID); got != tt.status || r.MayResume(v) != tt.mayResume || r.left(v) != (tt.want == handover.Left) {
					t.Errorf("domain %s, may resume: %t, left: %t", got, r.MayResume(v), r.left(v))
				}
				if said := r.message() != ""; said != s.Unsettled {
					t.Errorf("the condition says %q", r.message())
				}
				r.tasks.Stop()
			})
		})
	}
}

// TestDecide: a decision from outside ends what no answer does.
func TestDecide(t *testing.T) {
	for run, want := range map[bool]struct {
		state  handover.State
		status domain.Status
	}{true: {handover.Kept, domain.StatusRunning}, false: {handover.Left, domain.StatusShutoff}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			v := r.vm(t, "a", "")
			r.guest(t, v, domain.ReasonMigrated)
			r.put(t, v, handover.HandedOver, false)
			r.Recover(v)
			time.Sleep(time.Minute)
			if r.message() == "" {
				t.Error("the condition does not say what to do")
			}
			for range 2 {
				s, err := do[order.Report](t, r, v, order.Decide, order.Decision{Migration: order.Migration{Migration: uid}, Run: run})
				if err != nil || s.State != string(want.state) || !s.Ended {
					t.Errorf("%+v, %v", s, err)
				}
			}
			time.Sleep(time.Minute)
			if got := r.libvirt.Status(vmID); got != want.status || r.message() != "" {
				t.Errorf("domain %s, %q", got, r.message())
			}
			r.tasks.Stop()
		})
	}
}

// TestRecoverTarget has each state in which a shim that restarts finds a target.
func TestRecoverTarget(t *testing.T) {
	for name, tt := range map[string]struct {
		state  handover.State // none without an order
		ended  bool
		paused domain.Reason
		calls  string
		status domain.Status
	}{
		"no order":         {calls: "refuse: the shim of the target restarted"},
		"incoming":         {state: handover.Incoming, paused: domain.ReasonMigrated, calls: "refuse: the shim of the target restarted"},
		"taken":            {state: handover.Taken, paused: domain.ReasonMigrated, calls: "inherit, admit", status: domain.StatusRunning},
		"taken, runs":      {state: handover.Taken, calls: "inherit, admit", status: domain.StatusRunning},
		"refused":          {state: handover.Refused, paused: domain.ReasonMigrated, calls: "refuse: "},
		"refused, ended":   {state: handover.Refused, ended: true, calls: "refuse: the shim of the target restarted", status: domain.StatusRunning},
		"taken, then lost": {state: handover.Taken, paused: "gone", calls: "inherit, admit"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				v := r.vm(t, "b", uid)
				c := v.Record()
				c.Domain.UUID = vmID
				v.Publish(c)
				if tt.state != "" && tt.paused != "gone" {
					r.guest(t, v, tt.paused)
				}
				if tt.state != "" {
					r.put(t, v, tt.state, tt.ended)
				}
				r.Recover(v)
				time.Sleep(time.Minute)
				if got := r.said(); got != tt.calls || r.libvirt.Status(vmID) != tt.status {
					t.Errorf("calls: %s; domain %q", got, r.libvirt.Status(vmID))
				}
				r.tasks.Stop()
			})
		})
	}
}

// TestBrokenRecord: a guest whose migration's record cannot be used is not resumed.
func TestBrokenRecord(t *testing.T) {
	r := newRig(t)
	v := r.vm(t, "a", "")
	if err := os.WriteFile(filepath.Join(r.layout.Folder(v.Record().ID), "migration.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.Recover(v)
	if r.MayResume(v) || r.left(v) {
		t.Error("the guest is resumed")
	}
	_, err := do[order.Identity](t, r, v, order.Identify, order.Migration{Migration: uid})
	wantError(t, err, "the last migration's")
}
