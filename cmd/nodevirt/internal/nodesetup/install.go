package nodesetup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/nodesetup/journal"
	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/nodesetup/layout"
)

// Install makes the node run VMs. If that fails, it restores the node and returns the cause. A second
// Install changes nothing, unless it is another version's: it upgrades the files. An Install after one
// that was killed restores the node first. With dryRun, it only prints the changes.
func (s *Setup) Install(ctx context.Context, dryRun bool) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	j, err := journal.Load(s.Root)
	if err != nil {
		return err
	}
	switch {
	case j != nil && (j.State == journal.Installed || j.State == journal.Upgrading):
		return s.upgrade(ctx, j, dryRun)
	case j != nil && dryRun:
		return errors.New("an earlier installation was interrupted: run \"nodevirt node uninstall\" first")
	case j != nil:
		fmt.Fprintln(s.Out, "An earlier installation was interrupted. Restore the node first.")
		if err := s.restore(ctx, j); err != nil {
			return err
		}
	}
	p, err := newPlan(s.Root, s.Programs)
	if err != nil {
		return err
	}
	files, err := records(s.Root, p.all())
	if err != nil {
		return err
	}
	p.print(s.Out, files)
	if dryRun {
		return nil
	}
	if err := s.Node.Check(ctx, p.config); err != nil {
		return err
	}
	before, err := s.Node.Status(ctx, p.layout.Kubeconfig)
	if err != nil {
		return err
	}
	if !before.Ready {
		return fmt.Errorf("the node is not ready: %s; repair it first", before.Message)
	}
	if err := freeHandler(s.Root, p, before.Handlers); err != nil {
		return err
	}
	running, err := s.Node.Running(ctx, p.config.Containerd.Address)
	if err != nil {
		return err
	}
	j = &journal.Journal{State: journal.Changing, Layout: p.layout.Name, Files: files, ShimEnabled: s.Node.Enabled(ctx, shimUnit)}
	if v, ok := before.Labels[Label]; ok {
		j.Label = &v
	}
	if err := j.Save(s.Root); err != nil {
		return err
	}
	if err := s.change(ctx, p, j, running); err != nil {
		return s.rollBack(ctx, j, err)
	}
	fmt.Fprintln(s.Out, "\nThis node runs VMs.")
	return nil
}

// freeHandler returns an error if the container runtime has the handler of VMs already, for pods of others: the shim would take
// these pods for VMs, and the node could not be uninstalled. A kubelet that uses the shim reports the shim's handler.
func freeHandler(root *os.Root, p plan, handlers []string) error {
	socket, err := p.layout.Runtime(root)
	if err != nil || socket == layout.CleanSocket(p.config.Listen) || !slices.Contains(handlers, p.config.Handler) {
		return err
	}
	return fmt.Errorf("the container runtime has a runtime handler %q already, for pods of others: set handler in /%s, and the RuntimeClass of VMs, to another name, "+
		"or remove that handler from containerd's config", p.config.Handler, configPath)
}

// change does what the journal has recorded.
func (s *Setup) change(ctx context.Context, p plan, j *journal.Journal, running map[string]string) error {
	var restarted time.Time
	value := labelValue
	return s.run(ctx, []step{
		{"Write the files", func(context.Context) error { return j.Apply(s.Root) }},
		{"Reload systemd", s.reload},
		{"Restart " + string(p.daemon), func(ctx context.Context) error { return s.restartLibvirt(ctx, p.daemon) }},
		{"Start " + shimUnit, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, s.Wait) // the unit itself waits for containerd forever
			defer cancel()
			return errors.Join(s.Node.Systemctl(ctx, "enable", shimUnit), s.Node.Systemctl(ctx, "restart", shimUnit))
		}},
		{"Restart " + p.layout.Unit, func(ctx context.Context) error {
			restarted = time.Now()
			return s.Node.Systemctl(ctx, "restart", p.layout.Unit)
		}},
		{"Wait until the node is ready", func(ctx context.Context) error {
			return s.untilReady(ctx, p.layout.Kubeconfig, p.config.Handler, true, restarted)
		}},
		{"Check that containers still run", func(ctx context.Context) error { return s.checkRunning(ctx, p.config.Listen, running) }},
		{"Label the node", func(ctx context.Context) error { return s.Node.SetLabel(ctx, p.layout.Kubeconfig, Label, &value) }},
		{"Complete the installation", func(context.Context) error {
			j.State = journal.Installed
			return j.Save(s.Root)
		}},
	})
}

// rollBack restores the node after a failure, and returns the cause.
func (s *Setup) rollBack(ctx context.Context, j *journal.Journal, cause error) error {
	fmt.Fprintf(s.Out, "\nThe installation failed: %v\nRestore the node.\n", cause)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if err := s.restore(ctx, j); err != nil {
		return fmt.Errorf("%w; the node is not fully restored, run \"nodevirt node uninstall\": %w", cause, err)
	}
	return fmt.Errorf("%w; the node is as before", cause)
}
