package agent

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func newAgent(n node, h host) *Agent {
	return &Agent{Node: n, Host: h, Log: slog.New(slog.DiscardHandler), Retry: 15 * time.Second, MaxRetry: time.Minute}
}

func TestWish(t *testing.T) {
	for _, c := range []struct {
		install, owner string
		want           wish
	}{
		{"true", "", install},
		{"true", Owner, install},
		{"", Owner, restore},
		{"false", Owner, restore},
		{"force-uninstall", Owner, force},
		{"", "", nothing},
		// Another program's installation is not ours to remove.
		{"force-uninstall", "", nothing},
		{"", "someone", nothing},
	} {
		if got := wishOf(map[string]string{InstallLabel: c.install, OwnerLabel: c.owner}); got != c.want {
			t.Errorf("install %q, installed by %q: %s, not %s", c.install, c.owner, got, c.want)
		}
	}
}

// TestLabels: the label installs, its removal restores the node once no VM runs, or at once if forced.
func TestLabels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, h := newFakeNode(map[string]string{"zone": "a", InstallLabel: "true"}), &fakeHost{}
		a := newAgent(n, h)
		if a.Ready() == nil {
			t.Error("ready before the installation")
		}
		go a.Run(t.Context())
		label := func(value *string) {
			t.Helper()
			if err := n.SetLabel(t.Context(), InstallLabel, value); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		check := func(installed bool, ready string, labels map[string]string) {
			t.Helper()
			if _, is, log := h.get(); is != installed {
				t.Errorf("installed: %t (%s)", is, log)
			}
			if err := a.Ready(); err != nil && (ready == "" || !strings.Contains(err.Error(), ready)) || err == nil && ready != "" {
				t.Errorf("ready: %v, not %q", err, ready)
			}
			if now, _ := n.Labels(); !maps.Equal(now, labels) {
				t.Errorf("labels %v, not %v", now, labels)
			}
		}
		synctest.Wait()
		check(true, "", map[string]string{"zone": "a", InstallLabel: "true", OwnerLabel: Owner})

		h.set(func() { h.vms = []string{"default/web"} })
		label(nil)
		check(true, "VMs run", map[string]string{"zone": "a", OwnerLabel: Owner})
		h.set(func() { h.vms = nil })
		time.Sleep(time.Minute)
		check(false, "", map[string]string{"zone": "a"})
		if placed, _, _ := h.get(); placed {
			t.Error("the programs are still on the node")
		}

		yes, forced := "true", removalForced
		label(&yes)
		check(true, "", map[string]string{"zone": "a", InstallLabel: "true", OwnerLabel: Owner})
		h.set(func() { h.vms = []string{"default/web"} })
		label(&forced)
		check(false, "", map[string]string{"zone": "a", InstallLabel: forced})

		want := "Installed, UninstallFailed, Uninstalled, Installed, Uninstalled"
		var reasons []string
		for _, e := range n.events {
			reason, _, _ := strings.Cut(e, ":")
			reasons = append(reasons, reason)
		}
		if got := strings.Join(reasons, ", "); got != want {
			t.Errorf("events %s, not %s", got, want)
		}
	})
}

// TestRetry: a failed installation is tried again, ever more slowly, until it succeeds.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, h := newFakeNode(map[string]string{InstallLabel: "true"}), &fakeHost{unfit: errors.New("no QEMU")}
		a := newAgent(n, h)
		go a.Run(t.Context())
		time.Sleep(10*time.Minute + time.Second)
		_, _, log := h.get()
		if tries := strings.Count(log, "node install"); tries < 9 || tries > 13 {
			t.Errorf("%d tries in ten minutes", tries)
		}
		if err := a.Ready(); err == nil || !strings.Contains(err.Error(), "no QEMU") {
			t.Errorf("ready: %v", err)
		}
		h.set(func() { h.unfit = nil })
		time.Sleep(2 * time.Minute)
		if err := a.Ready(); err != nil {
			t.Error(err)
		}
	})
}

// TestKilled ends the agent before each of its changes. The next agent completes the installation, or
// the removal.
func TestKilled(t *testing.T) {
	for _, removal := range []bool{false, true} {
		for at := 1; ; at++ {
			killed := true
			synctest.Test(t, func(t *testing.T) {
				n, h := newFakeNode(map[string]string{InstallLabel: "true"}), &fakeHost{}
				if removal {
					n.labels = map[string]string{OwnerLabel: Owner}
					h.placed, h.installed = true, true
				}
				ctx, kill := context.WithCancel(t.Context())
				changes := 0
				step := func() {
					if changes++; changes == at {
						kill()
					}
				}
				n.step, h.step = step, step
				first := newAgent(n, h)
				go first.Run(ctx)
				synctest.Wait()
				killed = changes >= at
				kill()
				synctest.Wait()
				n.step, h.step = nil, nil
				go newAgent(n, h).Run(t.Context())
				synctest.Wait()
				placed, installed, log := h.get()
				labels, _ := n.Labels()
				if placed == removal || installed == removal || (labels[OwnerLabel] == Owner) == removal {
					t.Errorf("removal %t, killed at change %d: programs %t, installed %t, labels %v (%s)", removal, at, placed, installed, labels, log)
				}
			})
			if !killed {
				if at < 4 {
					t.Errorf("removal %t: only %d changes", removal, at-1)
				}
				break
			}
		}
	}
}
