package supervisor

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Daemon is a program that the supervisor runs.
type Daemon struct {
	Name string
	Args []string // the program's absolute path first
	Env  []string
	Dir  string // its working directory
	Log  string // a file that its output is appended to
}

// State is the state of a daemon.
type State struct {
	Name   string
	PID    int // as the node sees it
	Ended  bool
	Status string // how it ended
}

// daemons are the supervisor's children by name. A name stays known after its process ended.
type daemons struct {
	mu     sync.Mutex
	states map[string]*State
}

func newDaemons() *daemons { return &daemons{states: map[string]*State{}} }

// start runs a daemon in a new session.
func (d *daemons) start(x Daemon) (int, error) {
	// Held until the process is known by its name, so that its end can't be seen before.
	d.mu.Lock()
	defer d.mu.Unlock()
	if s, ok := d.states[x.Name]; ok && !s.Ended {
		return 0, fmt.Errorf("%s runs already, as process %d", x.Name, s.PID)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, fmt.Errorf("give %s its files: %w", x.Name, err)
	}
	defer null.Close()
	log, err := os.OpenFile(x.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, fmt.Errorf("give %s its files: %w", x.Name, err)
	}
	defer log.Close()
	// Not os/exec: who reaps is reap alone.
	pid, err := syscall.ForkExec(x.Args[0], x.Args, &syscall.ProcAttr{
		Dir:   x.Dir,
		Env:   x.Env,
		Files: []uintptr{null.Fd(), log.Fd(), log.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("run %s: %w", x.Args[0], err)
	}
	d.states[x.Name] = &State{Name: x.Name, PID: pid}
	return pid, nil
}

func (d *daemons) signal(name string, sig syscall.Signal) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, ok := d.states[name]
	if !ok || s.Ended {
		return fmt.Errorf("signal %s: it does not run", name)
	}
	// The process can't have been reaped and its number reused: reap needs the lock for that.
	if err := syscall.Kill(s.PID, sig); err != nil {
		return fmt.Errorf("signal %s: %w", name, err)
	}
	return nil
}

func (d *daemons) list() []State {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []State
	for _, s := range d.states {
		all = append(all, *s)
	}
	slices.SortFunc(all, func(a, b State) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// reap waits for every child, daemon or orphan, as PID 1 has to.
func (d *daemons) reap() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	for range ended {
		for d.reapOne() {
		}
	}
}

func (d *daemons) reapOne() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	var status syscall.WaitStatus
	pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
	if err != nil || pid <= 0 {
		return false
	}
	for _, s := range d.states {
		if s.PID == pid {
			s.Ended, s.Status = true, describe(status)
		}
	}
	return true
}

func describe(s syscall.WaitStatus) string {
	if s.Signaled() {
		return "killed by " + s.Signal().String()
	}
	return fmt.Sprintf("exit status %d", s.ExitStatus())
}
