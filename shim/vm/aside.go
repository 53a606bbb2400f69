package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/nodevirt/nodevirt/shim/record"
)

// setAside gets broken records out of the way: they stop nothing but their own
// VM. Its guest may still run; it is told by tellStrayDomains.
func (m *Manager) setAside() error {
	broken, err := m.Records.SetAside()
	for _, b := range broken {
		out := "remove the pod that it was of, with virsh its domain if there still is one, then this file"
		if b.Kind == "container" {
			out = "with virsh destroy and undefine its domain, whose name ends in _" + b.ID[:12] + ", if there still is one; " +
				"take from the folder what is of use, remove it, and start the shim again, which gives the image's disk back"
		}
		m.Logger.Error("a broken record was set aside", "kind", b.Kind, "id", b.ID, "path", b.Path, "error", b.Err, "way out", out)
	}
	if err != nil {
		return err
	}
	aside, err := m.Records.ContainersAside()
	if err != nil {
		return err
	}
	for _, id := range aside {
		m.aside[id] = true
	}
	if len(aside) > 0 {
		m.lostUIDs, err = m.uidsInUse()
	}
	return err
}

// uidsInUse are those of the VMs' range that processes have: the guest of a
// broken record must not share its user with a new one.
func (m *Manager) uidsInUse() (map[uint32]bool, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("find user ids in use: %w", err)
	}
	used := map[uint32]bool{}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		var st syscall.Stat_t
		if err := syscall.Stat(filepath.Join("/proc", e.Name()), &st); err != nil {
			continue // it ended
		}
		if st.Uid >= m.UIDBase && st.Uid-m.UIDBase < m.UIDCount {
			used[st.Uid] = true
		}
	}
	return used, nil
}

// mendSandbox makes the record of a container's sandbox anew where that one is
// lost: without it, the pod's removal would pass the container by.
func (m *Manager) mendSandbox(r record.Container) error {
	if _, known := m.Handler(r.SandboxID); known {
		return nil
	}
	s := record.Sandbox{ID: r.SandboxID, Handler: m.RuntimeHandler, CreatedAt: r.CreatedAt, Config: r.Sandbox}
	m.mu.Lock()
	m.sandboxes[s.ID] = s
	m.mu.Unlock()
	return m.Records.PutSandbox(s)
}

// sweepRun ends and removes what the run folder holds of containers that have no
// record, broken ones aside.
func (m *Manager) sweepRun(ctx context.Context) error {
	known := func(id string) bool { return m.Has(id) || m.aside[id] }
	errs := []error{m.Network.Sweep(ctx, known)}
	sockets, err := os.ReadDir(m.ConsoleDir)
	errs = append(errs, err)
	for _, s := range sockets {
		if id, found := strings.CutSuffix(s.Name(), ".sock"); found && !known(id) {
			errs = append(errs, ignoreAbsent(os.Remove(filepath.Join(m.ConsoleDir, s.Name()))))
		}
	}
	return errors.Join(errs...)
}
