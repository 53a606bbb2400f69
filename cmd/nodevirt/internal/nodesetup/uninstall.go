package nodesetup

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/nodesetup/journal"
	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/nodesetup/layout"
	"github.com/nodevirt/nodevirt/shim/config"
)

// Uninstall restores the node. It refuses while VMs run, and if another program has changed a file
// since; with force it removes the VMs, and restores the files as they were before the installation.
// On a node without an installation it does nothing.
func (s *Setup) Uninstall(ctx context.Context, force bool) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	j, err := journal.Load(s.Root)
	if err != nil {
		return err
	}
	if j == nil {
		fmt.Fprintln(s.Out, "nodevirt is not installed on this node.")
		return nil
	}
	l, c, err := s.installed()
	if err != nil {
		return err
	}
	if !force {
		if err := s.mayUninstall(ctx, j, c); err != nil {
			return err
		}
	}
	if err := s.removeVMs(ctx, l, c, force); err != nil {
		return err
	}
	j.State = journal.Changing
	if err := j.Save(s.Root); err != nil {
		return err
	}
	if err := s.restore(ctx, j); err != nil {
		return err
	}
	fmt.Fprintln(s.Out, "\nThis node is as before the installation.")
	return nil
}

// installed returns the layout, and the shim's config.
func (s *Setup) installed() (layout.Layout, config.Config, error) {
	l, err := layout.Detect(s.Root)
	if err != nil {
		return l, config.Config{}, err
	}
	_, c, err := shimConfig(s.Root, l)
	return l, c, err
}

func (s *Setup) mayUninstall(ctx context.Context, j *journal.Journal, c config.Config) error {
	edited, err := j.Edited(s.Root)
	if err != nil {
		return err
	}
	if len(edited) > 0 && j.State != journal.Upgrading { // then files may be of two versions
		return fmt.Errorf("uninstall: these files have changed since the installation: %s; save your changes, then use --force",
			strings.Join(edited, ", "))
	}
	if j.State == journal.Changing {
		return nil // the shim may never have run
	}
	vms, err := s.Node.VMs(ctx, c.Listen)
	if err != nil {
		return fmt.Errorf("uninstall: look for running VMs: %w; start %s, or use --force", err, shimUnit)
	}
	if len(vms) > 0 {
		return fmt.Errorf("uninstall: VMs run on this node: %s; run kubectl drain, or use --force, which ends them",
			strings.Join(vms, ", "))
	}
	return nil
}

// removeVMs ends VMs, if forced. The kubelet would create them again: it stops first, and restore
// starts it.
func (s *Setup) removeVMs(ctx context.Context, l layout.Layout, c config.Config, force bool) error {
	if !force {
		return nil
	}
	vms, err := s.Node.VMs(ctx, c.Listen)
	if err != nil || len(vms) == 0 {
		return nil //nolint:nilerr // without a shim no VM can be removed, and the user has asked to go on
	}
	return s.run(ctx, []step{
		{"Stop " + l.Unit, func(ctx context.Context) error { return s.Node.Systemctl(ctx, "stop", l.Unit) }},
		{"Remove the VMs " + strings.Join(vms, ", "), func(ctx context.Context) error { return s.Node.RemoveVMs(ctx, c.Listen) }},
	})
}

// restore makes the node as it was before the installation, from any state, and removes the journal
// if all succeeded. It can run again.
func (s *Setup) restore(ctx context.Context, j *journal.Journal) error {
	l, c, err := s.installed()
	if err != nil {
		return err
	}
	d := libvirt(s.Root)
	var restarted time.Time
	return s.run(ctx, []step{
		// While systemd still has the unit, which may be a file of the installation.
		{"Disable " + shimUnit, func(ctx context.Context) error {
			if j.ShimEnabled || !s.Node.Enabled(ctx, shimUnit) {
				return nil
			}
			return s.Node.Systemctl(ctx, "disable", shimUnit)
		}},
		{"Restore the files", func(context.Context) error { return j.Restore(s.Root) }},
		{"Reload systemd", s.reload},
		{"Restart " + l.Unit, func(ctx context.Context) error {
			restarted = time.Now()
			return s.Node.Systemctl(ctx, "restart", l.Unit)
		}},
		// The shim serves until the kubelet has left it.
		{"Wait until the node is ready", func(ctx context.Context) error {
			return s.untilReady(ctx, l.Kubeconfig, c.Handler, j.ShimEnabled, restarted)
		}},
		{"Stop " + shimUnit, func(ctx context.Context) error {
			if j.ShimEnabled {
				return nil
			}
			return s.stop(ctx)
		}},
		{"Restart " + string(d), func(ctx context.Context) error { return s.restartLibvirt(ctx, d) }},
		{"Restore the label", func(ctx context.Context) error { return s.Node.SetLabel(ctx, l.Kubeconfig, Label, j.Label) }},
		{"Remove the journal", func(context.Context) error { return journal.Remove(s.Root) }},
	})
}

// stop stops the shim and what it has started on the node. No VM runs.
func (s *Setup) stop(ctx context.Context) error {
	for _, unit := range []string{shimUnit, tgtdUnit} {
		if err := s.Node.Stop(ctx, unit); err != nil {
			return err
		}
	}
	return s.Node.Unlimit(ctx)
}
