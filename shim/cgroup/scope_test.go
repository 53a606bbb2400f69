package cgroup

import (
	"errors"
	"testing"

	"github.com/opencontainers/cgroups"
)

// race is a manager whose scope another process has started, but whose groups come late.
type race struct {
	cgroups.Manager
	applied error
	late    int // how many calls of AddPid fail
	added   int
}

func (r *race) Apply(int) error { return r.applied }

func (r *race) AddPid(_ string, pid int) error {
	if r.late--; r.late >= 0 {
		return errors.New("no such group")
	}
	r.added = pid
	return nil
}

// TestStartScopeTwice: QEMU and dnsmasq start side by side, and each can be the scope's first process.
func TestStartScopeTwice(t *testing.T) {
	exists := errors.New("Unit nodevirt-1.scope was already loaded or has a fragment file.") //nolint:revive // systemd's words
	r := &race{applied: exists, late: 3}
	g := &Group{config: &cgroups.Cgroup{Systemd: true}, man: r, paths: map[string]string{"": t.TempDir() + "/none"}, limits: &Limits{}}
	if err := g.Add(7); err != nil || r.added != 7 {
		t.Errorf("%v; process %d was added", err, r.added)
	}
	r.applied, r.added = errors.New("no D-Bus"), 0
	if err := g.Add(7); !errors.Is(err, r.applied) || r.added != 0 {
		t.Errorf("%v; process %d was added", err, r.added)
	}
}

// TestAddToHalfAScope: on v1 a scope's groups appear one after the other. An Add meanwhile joins the scope
// that another one starts.
func TestAddToHalfAScope(t *testing.T) {
	exists := errors.New("Unit nodevirt-1.scope was already loaded or has a fragment file.") //nolint:revive // systemd's words
	r := &race{applied: exists, late: 3}
	there := t.TempDir()
	g := &Group{config: &cgroups.Cgroup{Systemd: true}, man: r, paths: map[string]string{"memory": there, "pids": there + "/none"}}
	g.Remember(Limits{})
	if err := g.Add(7); err != nil || r.added != 7 {
		t.Errorf("%v; process %d was added", err, r.added)
	}
}
