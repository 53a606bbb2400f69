package handover

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var (
	rounds = flag.Int("rounds", 400, "random rounds")
	seed   = flag.Uint64("seed", 1, "the seed of the first random round")
)

// faults are all that can go wrong at a point, by name. All but those of QEMU are over
// after [world.repair].
func faults() map[string]func(*world) {
	stop := func(n func(*world) *node) func(*world) { return func(w *world) { n(w).process.stop() } }
	kill := func(n func(*world) *node) func(*world) { return func(w *world) { n(w).process.kill() } }
	source, target := func(w *world) *node { return w.source }, func(w *world) *node { return w.target }
	locked := func(do func(*world)) func(*world) {
		return func(w *world) {
			w.mu.Lock()
			defer w.mu.Unlock()
			do(w)
		}
	}
	return map[string]func(*world){
		"kill the source's shim": kill(source),
		"kill the target's shim": kill(target),
		"stop the source's shim": stop(source),
		"stop the target's shim": stop(target),
		// Only the goroutine at the point waits, longer than its peer does.
		"stall":                  func(*world) { time.Sleep(3 * time.Minute) },
		"cut the link":           func(w *world) { w.link.fail(false) },
		"hang the link":          func(w *world) { w.link.fail(true) },
		"blink the link":         func(w *world) { w.link.fail(false); w.link.repair() },
		"fill the source's disk": locked(func(w *world) { w.source.full, w.source.torn = true, false }),
		"tear the source's disk": locked(func(w *world) { w.source.full, w.source.torn = true, true }),
		"fill the target's disk": locked(func(w *world) { w.target.full, w.target.torn = true, false }),
		"tear the target's disk": locked(func(w *world) { w.target.full, w.target.torn = true, true }),
		"kill the source's libvirtd": locked(func(w *world) {
			w.source.libvirtd++
		}),
		"kill the target's libvirtd": locked(func(w *world) {
			w.target.libvirtd++
			if w.target.qemu == waiting {
				w.target.set(absent)
			}
		}),
		"kill the source's QEMU": locked(func(w *world) { w.source.killed = true; w.source.set(absent) }),
		"kill the target's QEMU": locked(func(w *world) {
			w.target.killed = w.target.killed || w.target.qemu != absent
			w.target.set(absent)
		}),
	}
}

func (w *world) repair(ctx context.Context) {
	w.link.repair()
	for _, n := range []*node{w.source, w.target} {
		w.mu.Lock()
		n.full = false
		p := n.process
		dead := p.dead
		w.mu.Unlock()
		p.proceed()
		if dead {
			n.boot(ctx)
		}
	}
}

// shims are the sources and targets that live in processes.
type shims struct {
	w       *world
	mu      sync.Mutex
	targets map[*process]*Target
	sources map[*process]*Source
}

// serve runs the target's shim for one connection.
func (s *shims) serve(p *process, c net.Conn) {
	defer c.Close()
	_ = s.target(p).Serve(p.ctx, c)
}

func (s *shims) target(p *process) *Target {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.targets[p] == nil {
		s.targets[p] = NewTarget(s.w.recorded(p.node), fakeTarget{p}, p, DefaultLimits(), func(s Step) { p.at(string(s)) })
	}
	return s.targets[p]
}

// source returns nil if the process found no record.
func (s *shims) source(p *process, rec Record) *Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sources[p] == nil && rec.State != "" {
		s.sources[p] = NewSource(rec, fakeSource{p}, p, DefaultLimits(), func(s Step) { p.at(string(s)) })
	}
	return s.sources[p]
}

func (w *world) recorded(n *node) Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n.disk == nil {
		return Record{}
	}
	return *n.disk
}

// boot starts both nodes' shims, of which the target's waits for a guest. It returns the source's process.
func (w *world) boot(ctx context.Context) (source *process, all *shims) {
	incoming := NewIncoming(testMigration, testVM)
	w.target.disk = &incoming
	source = w.source.boot(ctx)
	w.target.boot(ctx)
	return source, &shims{w: w, targets: map[*process]*Target{}, sources: map[*process]*Source{}}
}

// play runs a migration with the world's faults, repairs everything, recovers both
// nodes from their records, and checks the result.
func (w *world) play(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	from, all := w.boot(ctx)
	source := all.source(from, NewSending(testMigration, testVM))
	done := make(chan struct{})
	go func() {
		defer close(done)
		within, cancel := context.WithTimeout(from.ctx, 10*time.Minute)
		defer cancel()
		err := source.Run(within, w.dial(from, all.serve), []byte("shape"))
		if errors.Is(err, ErrUnsettled) && source.Record().MayResume() {
			w.violate("an unsettled source may resume")
		}
	}()
	select {
	case <-done:
	case <-time.After(time.Hour): // stopped
	}
	// Until the nodes agree, they recover again and again, with faults at first.
	for attempt := range 8 {
		w.repair(ctx)
		if attempt > 3 {
			w.mu.Lock()
			w.fault = func(*process, string) {}
			w.mu.Unlock()
			w.repair(ctx)
		}
		if attempt == 0 {
			select {
			case <-done: // a source that was stopped comes to its end
			case <-time.After(time.Hour):
			}
		}
		w.recover(ctx, all)
	}
	time.Sleep(time.Hour) // for what a stalled goroutine does late
	synctest.Wait()
	w.check(t)
}

func (w *world) violate(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violations = append(w.violations, text)
}

func (w *world) recover(ctx context.Context, all *shims) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	var both sync.WaitGroup
	both.Go(func() { _ = all.target(w.target.process).Recover(ctx) })
	both.Go(func() {
		p := w.source.process
		if source := all.source(p, w.recorded(w.source)); source != nil {
			_ = source.Recover(ctx, w.dial(p, all.serve))
		}
	})
	ended := make(chan struct{})
	go func() { both.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Hour): // stopped: repair lets it go on
	}
}

// check checks that one guest runs, unless QEMU was killed, on the node that both
// records name, and that the other node has nothing left.
func (w *world) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range w.violations {
		t.Error(v)
	}
	s, g := w.source.disk, w.target.disk
	switch {
	case s == nil && w.source.qemu == running:
	case s == nil:
		if !w.source.killed {
			t.Error("the source has no record and no guest")
		}
	case !s.Ended || !g.Ended:
		t.Errorf("not ended: source %+v, target %+v", *s, *g)
	case (s.State == Left) != (g.State == Taken):
		t.Errorf("the nodes disagree: source %+v, target %+v", *s, *g)
	case s.State == Left && w.source.qemu != absent:
		t.Errorf("the source's QEMU is %s", w.source.qemu)
	case s.State == Left && w.target.qemu != running && !w.target.killed:
		t.Errorf("the target's guest is %s", w.target.qemu)
	case s.State == Kept && w.target.qemu != absent:
		t.Errorf("the target's QEMU is %s", w.target.qemu)
	case s.State == Kept && w.source.qemu != running && !w.source.killed:
		t.Errorf("the source's guest is %s", w.source.qemu)
	}
	if t.Failed() {
		t.Logf("trace:\n%s", strings.Join(w.trace, "\n"))
	}
}

// points are all points of a migration without faults.
func points(t *testing.T) (all []string) {
	t.Helper()
	w := newWorld()
	w.fault = func(_ *process, point string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		all = append(all, point)
	}
	synctest.Test(t, func(t *testing.T) { w.play(t) })
	if w.target.qemu != running || w.source.disk.State != Left {
		t.Fatalf("a migration without faults ends with %+v", w.source.disk)
	}
	return slices.Compact(all)
}

// TestFaults has each fault at each point.
func TestFaults(t *testing.T) {
	for _, point := range points(t) {
		for name, fault := range faults() {
			t.Run(point+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld()
					once := false
					w.fault = func(_ *process, at string) {
						if at == point && !once {
							once = true
							fault(w)
						}
					}
					w.play(t)
				})
			})
		}
	}
}

// TestLockedPVC: the target completes the guest, cannot write that it has, and refuses. Its
// QEMU has the lock of the PVC until it ends, and the source resumes its guest after that.
func TestLockedPVC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		failed, stalled := false, false
		w.fault = func(_ *process, at string) {
			switch {
			case at == "target before write taken" && !failed:
				failed = true
				faults()["fill the target's disk"](w)
			case at == "target after write taken":
				w.mu.Lock()
				w.target.full = false
				w.mu.Unlock()
			case at == "target before Discard" && !stalled:
				stalled = true
				time.Sleep(time.Minute)
			}
		}
		w.play(t)
		if w.locked == 0 || w.source.disk.State != Kept || w.source.qemu != running {
			t.Errorf("%d calls found the lock taken; source %+v, its guest is %s\n%s", w.locked, *w.source.disk, w.source.qemu, strings.Join(w.trace, "\n"))
		}
	})
}

// TestTornRecord has a write of a decision that fails and leaves the new record, a second
// one that fails, and then a shim that dies at each later point.
func TestTornRecord(t *testing.T) {
	all := points(t)
	for _, side := range []string{"source", "target"} {
		for _, write := range []string{"handed-over", "left", "kept", "taken", "refused"} {
			for _, later := range append(all, string(StepKept), string(StepRefused), string(StepUnanswered)) {
				t.Run(side+" "+write+"/"+later, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld()
						var torn, killed atomic.Bool
						w.fault = func(_ *process, at string) {
							switch {
							case at == side+" before write "+write && torn.CompareAndSwap(false, true):
								faults()["tear the "+side+"'s disk"](w)
							case at == later && torn.Load() && killed.CompareAndSwap(false, true):
								faults()["kill the "+side+"'s shim"](w)
							}
						}
						w.play(t)
					})
				})
			}
		}
	}
}

// TestRandomFaults has up to four faults at random points, also while the nodes recover.
func TestRandomFaults(t *testing.T) {
	kinds := faults()
	names := make([]string, 0, len(kinds))
	for name := range kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	for i := range *rounds {
		n := *seed + uint64(i)
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(n, 0))
				at := map[int]string{}
				for range 1 + r.IntN(4) {
					at[r.IntN(80)] = names[r.IntN(len(names))]
				}
				w := newWorld()
				var mu sync.Mutex
				count := 0
				w.fault = func(*process, string) {
					mu.Lock()
					name := at[count]
					count++
					mu.Unlock()
					if name != "" {
						w.mu.Lock()
						w.trace = append(w.trace, name)
						w.mu.Unlock()
						kinds[name](w)
					}
				}
				w.play(t)
			})
		})
	}
}
