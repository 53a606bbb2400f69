package witness_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/nodevirt/nodevirt/shim/witness"
)

// The steps of the rule. A world without one of them must break.
const (
	stepProcesses = "ask the processes before a guest counts as ended"
	stepUnknown   = "release nothing while the processes are not known"
	stepUndo      = "end QEMU before anything of a failed start is released"
	stepLost      = "keep what guests without a record use"
	stepReserve   = "reserve the device before the start"
	stepHolders   = "ask who has the device open before the start"
	stepUsers     = "ask the processes before a user ID is given"
	stepPIDFD     = "look at the process again, by its pidfd, before a signal"
	stepStrangers = "take no process of an ordinary container for a VM's"
	stepOldRecord = "do not believe a record that says that the VM never ran"
)

func steps() []string {
	return []string{stepProcesses, stepUnknown, stepUndo, stepLost, stepReserve, stepHolders, stepUsers, stepPIDFD, stepStrangers, stepOldRecord}
}

// qemu is a process. A dying one has got its signal and still has its device open.
type qemu struct {
	id, device string
	uid, pid   int
	dying      bool
}

// entry is a VM as a record has it, and as the shim's table has it.
type entry struct {
	id, device string
	uid        int
	state      string // creating, created, starting, running, exited
	unclean    bool
}

// world is a node: what is true of it, and what its witnesses know.
type world struct {
	mu   sync.Mutex
	r    *rand.Rand
	skip string // the step of the rule that this world leaves out
	bad  []string

	processes []*qemu
	strangers map[int]bool            // VMs' user IDs that processes of ordinary containers have
	pids      []int                   // of processes that have ended, to be used again
	libvirt   map[string]witness.Word // its domains
	up        bool                    // libvirtd answers
	proc      bool                    // /proc answers
	records   map[string]entry
	files     map[string]bool // the VMs' overlays
	shim      *shim
	serial    int
	lastPID   int
}

// shim is one process of the shim: what it has in memory.
type shim struct {
	w        *world
	table    map[string]*entry
	lost     map[string]*qemu
	reserved map[string]string // devices, and the VMs that have them
	turns    map[string]bool
	ready    bool
}

func newWorld(seed uint64, skip string) *world {
	return &world{
		r: rand.New(rand.NewPCG(seed, 55)), skip: skip, libvirt: map[string]witness.Word{}, up: true, proc: true,
		records: map[string]entry{}, files: map[string]bool{}, strangers: map[int]bool{},
	}
}

func (w *world) does(step string) bool { return w.skip != step }

func (w *world) violated(format string, args ...any) {
	if len(w.bad) > 0 {
		return // the first one says it
	}
	w.bad = append(w.bad, fmt.Sprintf(format, args...))
}

// pause lets others work. A shim that has died meanwhile does nothing more.
func (s *shim) pause() {
	d := time.Duration(s.w.r.Int64N(int64(100 * time.Millisecond)))
	s.w.mu.Unlock()
	time.Sleep(d)
	s.w.mu.Lock()
	if s.w.shim != s {
		runtime.Goexit()
	}
}

// turn runs a call with the VM's turn, or not at all.
func (s *shim) turn(id string, do func()) {
	if s.turns[id] {
		return
	}
	s.turns[id] = true
	defer delete(s.turns, id)
	do()
}

// go1 runs a call of the shim.
func (w *world) go1(all *sync.WaitGroup, do func(s *shim)) {
	s := w.shim
	all.Go(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.shim == s {
			do(s)
		}
	})
}

// qemuOf is what /proc says of a VM's user and cgroup.
func (w *world) qemuOf(id string, uid int) *qemu {
	for _, q := range w.processes {
		if q.id == id && q.uid == uid {
			return q
		}
	}
	if w.strangers[uid] && !w.does(stepStrangers) {
		return &qemu{id: "stranger", uid: uid}
	}
	return nil
}

func (w *world) presence(id string, uid int) witness.Presence {
	switch {
	case !w.proc && w.does(stepUnknown):
		return witness.Unknown
	case !w.proc, w.qemuOf(id, uid) == nil:
		return witness.Absent
	}
	return witness.Present
}

// check looks for what must never be.
func (w *world) check() {
	writers := map[string]string{}
	for _, q := range w.processes {
		if other, taken := writers[q.device]; taken {
			w.violated("%s and %s write to %s", other, q.id, q.device)
		}
		writers[q.device] = q.id
		if !w.files[q.id] {
			w.violated("the overlay of %s is deleted while its QEMU runs", q.id)
		}
		for _, other := range w.processes {
			if other != q && other.uid == q.uid {
				w.violated("%s and %s have one user", q.id, other.id)
			}
		}
	}
}

// dies ends a process, and lets its ID be used again. libvirtd learns of the end of a domain that it knows.
func (w *world) dies(q *qemu) {
	w.processes = slices.DeleteFunc(w.processes, func(one *qemu) bool { return one == q })
	w.pids = append(w.pids, q.pid)
	if _, known := w.libvirt[q.id]; known {
		w.libvirt[q.id] = witness.Ended
	}
}

// signal ends the process with an ID, sometimes late. It was meant for a VM.
func (s *shim) signal(pid int, id string) {
	w := s.w
	for _, q := range slices.Clone(w.processes) {
		if q.pid != pid {
			continue
		}
		if q.id != id {
			w.violated("a signal for %s ended %s", id, q.id)
		}
		if w.r.IntN(3) == 0 {
			q.dying = true
		} else {
			w.dies(q)
		}
	}
}

// end ends a VM's QEMU, and reports whether it is gone.
func (s *shim) end(id string, uid int) bool {
	w := s.w
	if !w.proc {
		return !w.does(stepUnknown)
	}
	q := w.qemuOf(id, uid)
	if q == nil {
		return true
	}
	pid := q.pid
	for range 1 + w.r.IntN(4) {
		s.pause()
	}
	if now := w.qemuOf(id, uid); now != nil && now.pid == pid || !w.does(stepPIDFD) {
		s.signal(pid, id)
	}
	for range 20 {
		if w.proc && w.qemuOf(id, uid) == nil {
			return true
		}
		s.pause()
	}
	return false
}

// destroy asks libvirtd to end a domain and to forget it, and reports whether it has answered.
func (s *shim) destroy(id string) bool {
	w := s.w
	if !w.up {
		return false
	}
	if w.libvirt[id] == witness.Running {
		for _, q := range slices.Clone(w.processes) {
			if q.id == id {
				w.dies(q)
			}
		}
	}
	delete(w.libvirt, id)
	return true
}

// create makes a VM on a device.
func (s *shim) create(device string) {
	w := s.w
	used := maps.Clone(w.strangers)
	for _, e := range s.table {
		used[e.uid] = true
	}
	if w.does(stepUsers) {
		if !w.proc {
			return
		}
		for _, q := range w.processes {
			used[q.uid] = true
		}
	}
	uid := 1
	for used[uid] {
		uid++
	}
	w.serial++
	e := &entry{id: fmt.Sprint("vm", w.serial), device: device, uid: uid, state: "creating"}
	s.table[e.id] = e
	s.turn(e.id, func() {
		w.records[e.id] = *e
		s.pause()
		w.files[e.id] = true
		e.state = "created"
		w.records[e.id] = *e
	})
}

// start starts a VM.
func (s *shim) start(e *entry) {
	w := s.w
	if e.state != "created" || !w.up {
		return
	}
	e.state, e.unclean = "starting", true
	w.records[e.id] = *e
	if by := s.reserved[e.device]; by != "" && by != e.id && w.does(stepReserve) {
		s.fail(e)
		return
	}
	s.reserved[e.device] = e.id
	if w.does(stepHolders) {
		held := !w.proc || slices.ContainsFunc(w.processes, func(q *qemu) bool { return q.device == e.device })
		if held {
			s.fail(e)
			return
		}
	}
	s.pause()
	w.lastPID++
	pid := w.lastPID
	if len(w.pids) > 0 && w.r.IntN(2) == 0 {
		pid, w.pids = w.pids[len(w.pids)-1], w.pids[:len(w.pids)-1]
	}
	w.processes = append(w.processes, &qemu{id: e.id, device: e.device, uid: e.uid, pid: pid})
	w.libvirt[e.id] = witness.Running
	w.check()
	s.pause()
	if w.r.IntN(6) == 0 { // the start fails late
		s.fail(e)
		return
	}
	e.state = "running"
	w.records[e.id] = *e
}

func (s *shim) fail(e *entry) {
	e.state = "exited"
	s.w.records[e.id] = *e
	s.undo(e)
}

// undo releases what a VM has used.
func (s *shim) undo(e *entry) {
	w := s.w
	answered := s.destroy(e.id)
	if w.does(stepUndo) {
		if !answered && w.presence(e.id, e.uid) != witness.Absent || answered && !s.end(e.id, e.uid) {
			return
		}
	}
	if !answered {
		return
	}
	s.release(e)
}

func (s *shim) release(e *entry) {
	w := s.w
	if s.reserved[e.device] == e.id {
		delete(s.reserved, e.device)
	}
	e.unclean = false
	w.records[e.id] = *e
	if q := w.qemuOf(e.id, e.uid); q != nil {
		w.violated("what %s uses is released while its QEMU runs", e.id)
	}
}

// settle records the end of a guest.
func (s *shim) settle(e *entry) {
	w := s.w
	if e.state != "running" || !w.up {
		return
	}
	t := witness.Testimony{Processes: w.presence(e.id, e.uid), Libvirt: w.libvirt[e.id], Record: witness.Running}
	if t.Libvirt == witness.Silent { // an unknown domain
		t.Libvirt = witness.Ended
	}
	if !w.does(stepProcesses) {
		t.Processes = witness.Absent
	}
	if !witness.Judge(t).MayRelease() {
		return
	}
	if !w.does(stepProcesses) || !w.does(stepUnknown) { // then what is released is what libvirt says
		e.state = "exited"
		s.release(e)
		return
	}
	s.fail(e)
}

// remove ends a VM and removes all of it.
func (s *shim) remove(e *entry) {
	w := s.w
	if e.state == "running" {
		if !s.destroy(e.id) || !s.end(e.id, e.uid) {
			return
		}
		s.settle(e)
	}
	if e.unclean {
		s.undo(e)
	}
	if e.unclean || e.state == "running" || e.state == "starting" {
		return
	}
	if w.does(stepOldRecord) && !s.end(e.id, e.uid) {
		return
	}
	delete(w.records, e.id)
	delete(s.table, e.id)
	s.pause()
	delete(w.files, e.id)
	w.check()
}

// restart starts a new shim, which knows what the records say.
func (w *world) restart() {
	s := &shim{w: w, table: map[string]*entry{}, lost: map[string]*qemu{}, reserved: map[string]string{}, turns: map[string]bool{}}
	w.shim = s
	if !w.proc && w.does(stepUnknown) {
		return // it does not start
	}
	s.ready = true
	for id, e := range w.records {
		if e.state == "creating" {
			delete(w.records, id)
			continue
		}
		q := w.qemuOf(id, e.uid)
		if q != nil && e.state == "created" && w.does(stepOldRecord) {
			s.lost[id] = q
			continue
		}
		s.table[id] = &e
		if e.state == "starting" {
			e.state = "exited"
		}
		if e.state == "running" || e.unclean {
			s.reserved[e.device] = id
		}
	}
	if w.does(stepLost) {
		for _, q := range w.processes {
			if s.table[q.id] == nil {
				s.lost[q.id] = q
			}
		}
	}
	for id := range w.files {
		if s.table[id] == nil && s.lost[id] == nil {
			delete(w.files, id)
		}
	}
	w.check()
}

// watch does what the shim does by itself.
func (s *shim) watch(all *sync.WaitGroup) {
	w := s.w
	for _, id := range slices.Sorted(maps.Keys(s.table)) {
		e := s.table[id]
		w.go1(all, func(s *shim) {
			s.turn(id, func() {
				s.settle(e)
				if e.state == "exited" && e.unclean {
					s.undo(e)
				}
			})
		})
	}
	for id, q := range s.lost {
		if w.proc && !slices.Contains(w.processes, q) && w.up {
			delete(s.lost, id)
			delete(w.libvirt, id)
			delete(w.records, id) // by the administrator, if it is an old one
			delete(w.files, id)
		}
	}
}
