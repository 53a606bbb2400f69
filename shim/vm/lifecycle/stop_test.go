package lifecycle_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
)

// TestStopWithGrace: the button is pressed again every five seconds, since guests
// ignore it while they boot.
func TestStopWithGrace(t *testing.T) {
	for obeys, want := range map[int]time.Duration{1: 0, 3: 10 * time.Second, 6: 25 * time.Second} {
		onNode(t, func(t *testing.T, n *node) {
			n.run(t)
			id := n.started(t, "pod")
			n.libvirt.SetGuest(n.rec(t, id).Domain.UUID, vmtest.Guest{Obeys: obeys})
			begun := time.Now()
			must(t, n.Stop(t.Context(), id, 28*time.Second))
			if took := time.Since(begun); took != want {
				t.Errorf("a guest that obeys press %d ended after %s, want %s", obeys, took, want)
			}
			n.wantEnd(t, id, 0, "Completed", "")
		})
	}
}

func TestStopPowersOff(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.started(t, "pod")
		begun := time.Now()
		must(t, n.Stop(t.Context(), id, 12*time.Second))
		if took := time.Since(begun); took != 12*time.Second || n.script.Count("Libvirt.Shutdown") != 3 {
			t.Errorf("after %s and %d presses", took, n.script.Count("Libvirt.Shutdown"))
		}
		n.wantEnd(t, id, 137, "Error", "the VM was powered off")
		must(t, n.Stop(t.Context(), id, 12*time.Second)) // it has ended
		must(t, n.Stop(t.Context(), "unknown", 0))
	})
}

func TestStopAtOnce(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.started(t, "pod")
		must(t, n.StopIn(t.Context(), n.rec(t, id).SandboxID))
		n.wantEnd(t, id, 137, "Error", "the VM was powered off")
		if n.script.Count("Libvirt.Shutdown") != 0 {
			t.Error("the power button was pressed")
		}
		created := n.created(t, "other")
		must(t, n.Stop(t.Context(), created, 0)) // a guest that does not run
		if r := n.rec(t, created); r.State != record.Created {
			t.Errorf("a created container is %s", r.State)
		}
	})
}

// TestStopWithoutAButton: what keeps the button from being pressed is logged.
func TestStopWithoutAButton(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.started(t, "pod")
		n.script.Fail("Libvirt.Shutdown", errors.New("no ACPI"))
		begun := time.Now()
		must(t, n.Stop(t.Context(), id, time.Minute))
		if time.Since(begun) != 0 || n.log.count("requesting an ACPI shutdown failed") != 1 {
			t.Errorf("after %s; log:\n%s", time.Since(begun), n.log.text.String())
		}
		n.wantEnd(t, id, 137, "Error", "powered off")
	})
}

// TestStopOfAFrozenVM: libvirtd is well, and its QEMU can't answer.
func TestStopOfAFrozenVM(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.started(t, "pod")
		n.groups.Freeze(id)
		n.script.Hang("Libvirt.Destroy")
		for what, err := range map[string]error{"stop": n.Stop(t.Context(), id, 0), "remove": n.Remove(t.Context(), id)} {
			wantError(t, err, "the VM's cgroup is frozen, so that QEMU does not answer libvirtd; run: echo 0 > cgroup.freeze")
			if strings.Contains(err.Error(), "libvirtd is not available") {
				t.Errorf("%s: %v", what, err)
			}
		}
		n.script.Fail("Libvirt.Destroy", nil)
		must(t, n.Remove(t.Context(), id))
		n.wantNothing(t)
	})
}

func TestStopOfACallThatEnds(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.started(t, "pod")
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		err := n.Stop(ctx, id, time.Minute)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		wantError(t, err, "stop VM container")
		if r := n.rec(t, id); r.State != record.Running {
			t.Errorf("it is %s: its grace has not passed", r.State)
		}
	})
}

func TestStopWithLibvirtdAway(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.started(t, "pod")
		n.libvirt.SetAway(true)
		err := n.Stop(t.Context(), id, 0)
		wantError(t, err, "stop VM container", "libvirtd is not available", `see "A VM that can't be removed" in nodevirt's docs/node.md`)
		err = n.Remove(t.Context(), id)
		wantError(t, err, "failed to forcibly stop container", "libvirtd is not available")
		n.libvirt.SetAway(false)
		must(t, n.Remove(t.Context(), id))
		n.wantNothing(t)
	})
}

// TestStopWaitsForAStart: a stop that comes during a start ends what was started.
func TestStopWaitsForAStart(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.created(t, "pod")
		release := n.script.Hold("Libvirt.Resume")
		started, stopped := make(chan error), make(chan error)
		go func() { started <- n.Start(t.Context(), id) }()
		synctest.Wait()
		go func() { stopped <- n.Stop(t.Context(), id, 0) }()
		synctest.Wait()
		if n.script.Count("Libvirt.Destroy") != 0 {
			t.Error("the stop did not wait")
		}
		release()
		must(t, <-started)
		must(t, <-stopped)
		n.wantEnd(t, id, 137, "Error", "powered off")
	})
}

func TestRemove(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.run(t)
		id := n.started(t, "pod")
		results := make(chan error, 3)
		for range 3 {
			go func() { results <- n.Remove(t.Context(), id) }()
		}
		for range 3 {
			must(t, <-results)
		}
		must(t, n.Remove(t.Context(), id))
		if got := n.events.Take(); got != "stopped deleted" {
			t.Errorf("events %q", got)
		}
		n.wantNothing(t)
	})
}

// TestRemoveFails: the container stays until all that it is made of is removed.
func TestRemoveFails(t *testing.T) {
	for _, call := range []string{"Disks.Remove", "Disks.Release", "Store.RemoveContainer"} {
		onNode(t, func(t *testing.T, n *node) {
			id := n.created(t, "pod")
			n.script.Fail(call, errors.New("it is busy"))
			wantError(t, n.Remove(t.Context(), id), `remove VM container "`+id, "it is busy")
			n.rec(t, id)
			n.script.Fail(call, nil)
			must(t, n.Remove(t.Context(), id))
			n.wantNothing(t)
		})
	}
}

func TestReopenLog(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.created(t, "pod")
		wantError(t, n.ReopenLog(id), "container is not running")
		must(t, n.Start(t.Context(), id))
		must(t, n.ReopenLog(id))
		wantError(t, n.ReopenLog("unknown"), "not found")
	})
}
