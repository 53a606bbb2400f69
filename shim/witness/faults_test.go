package witness_test

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodevirt/nodevirt/shim/witness"
)

// rounds is how many sequences of faults a test tries.
const rounds = 400

// TestFaults: whatever the node's witnesses lose, no two QEMUs write to one device, nothing of a guest that runs is
// deleted or given to another VM, no process of another VM is ended, and everything can be removed in the end.
func TestFaults(t *testing.T) {
	for seed := range uint64(rounds) {
		if bad := simulate(t, seed, ""); len(bad) > 0 {
			t.Fatalf("seed %d: %v", seed, bad)
		}
	}
}

// TestEachStepIsNeeded: the simulation finds a violation if any one step of the rule is left out.
func TestEachStepIsNeeded(t *testing.T) {
	for _, step := range steps() {
		t.Run(step, func(t *testing.T) {
			for seed := range uint64(10 * rounds) {
				if bad := simulate(t, seed, step); len(bad) > 0 {
					t.Logf("seed %d: %v", seed, bad[0])
					return
				}
			}
			t.Error("nothing is violated without this step")
		})
	}
}

// simulate runs a node with faults, and then without, and returns what was violated.
func simulate(t *testing.T, seed uint64, skip string) (bad []string) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		w := newWorld(seed, skip)
		w.mu.Lock()
		w.restart()
		w.mu.Unlock()
		var all sync.WaitGroup
		for range 120 {
			w.act(&all)
			time.Sleep(time.Duration(seed%7+1) * 20 * time.Millisecond)
		}
		w.settleDown(&all)
		all.Wait()
		bad = w.bad
	})
	return bad
}

// act has one thing happen: a call, or a fault.
func (w *world) act(all *sync.WaitGroup) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.check()
	if !w.shim.ready {
		w.proc = true
		w.restart()
	}
	s := w.shim
	device := []string{"sda", "sdb"}[w.r.IntN(2)]
	ids := slices.Sorted(maps.Keys(s.table))
	pick := func(do func(s *shim, e *entry)) {
		if len(ids) == 0 {
			return
		}
		id := ids[w.r.IntN(len(ids))]
		e := s.table[id]
		w.go1(all, func(s *shim) { s.turn(id, func() { do(s, e) }) })
	}
	switch w.r.IntN(20) {
	case 0, 1, 2:
		w.go1(all, func(s *shim) { s.create(device) })
	case 3, 4, 5, 6:
		pick((*shim).start)
	case 7, 8:
		pick((*shim).remove)
	case 9, 10, 11:
		s.watch(all)
	case 12:
		w.restart()
	default:
		w.fault()
	}
}

// fault makes a witness wrong.
func (w *world) fault() {
	if len(w.processes) == 0 {
		return
	}
	q := w.processes[w.r.IntN(len(w.processes))]
	switch w.r.IntN(11) {
	case 0: // the status file is lost, the definition is not
		if _, known := w.libvirt[q.id]; known {
			w.libvirt[q.id] = witness.Ended
		}
	case 1: // both are lost
		delete(w.libvirt, q.id)
	case 2:
		w.up = !w.up
	case 3:
		delete(w.records, q.id)
		w.restart()
	case 4: // another root, or an empty one
		clear(w.records)
		w.restart()
	case 5: // a record of an earlier state
		if e, there := w.records[q.id]; there {
			e.state, e.unclean = "created", false
			w.records[q.id] = e
			w.restart()
		}
	case 6:
		w.proc = !w.proc
	case 7, 9: // the guest ends by itself
		w.dies(q)
	case 8: // one that takes long to end
		if q.dying {
			w.dies(q)
		}
	case 10: // a pod runs as its user
		w.strangers[q.uid] = true
	}
	w.check()
}

// settleDown ends the faults and all guests, and removes everything.
func (w *world) settleDown(all *sync.WaitGroup) {
	for range 60 {
		w.mu.Lock()
		w.up, w.proc = true, true
		if len(w.shim.table)+len(w.shim.lost) == 0 && len(w.files) > 0 || w.r.IntN(10) == 0 {
			w.restart()
		}
		for _, q := range slices.Clone(w.processes) {
			if q.dying || w.shim.lost[q.id] != nil { // an administrator ends these
				w.dies(q)
			}
		}
		w.shim.watch(all)
		for id, e := range w.shim.table {
			w.go1(all, func(s *shim) { s.turn(id, func() { s.remove(e) }) })
		}
		w.check()
		w.mu.Unlock()
		time.Sleep(10 * time.Second)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.processes)+len(w.files)+len(w.shim.table)+len(w.shim.lost)+len(w.shim.reserved) > 0 {
		w.violated("left: %d processes, files %v, VMs %v, lost %v, reserved %v", len(w.processes), w.files, w.shim.table, w.shim.lost, w.shim.reserved)
	}
}
