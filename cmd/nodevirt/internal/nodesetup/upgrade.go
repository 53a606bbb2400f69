package nodesetup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/nodesetup/journal"
)

// upgrade makes the files of an installed node those of this version, and restarts what reads them; the
// kubelet and VMs run on. If that fails, it writes the former files again, and returns the cause. If
// the files are this version's, it only reports so. An upgrade that was killed begins again.
func (s *Setup) upgrade(ctx context.Context, j *journal.Journal, dryRun bool) error {
	if err := s.mayUpgrade(ctx, j); err != nil {
		return err
	}
	p, err := newPlan(s.Root, s.Programs)
	if err != nil {
		return err
	}
	files, err := records(s.Root, p.edits)
	if err != nil {
		return err
	}
	if len(files) == 0 && j.State == journal.Installed {
		fmt.Fprintln(s.Out, "nodevirt is installed on this node.")
		return nil
	}
	fmt.Fprintln(s.Out, "Another version of nodevirt is installed on this node.")
	p.printFiles(s.Out, files)
	fmt.Fprintf(s.Out, "Services:\n  restart %s, restart %s\n\n", p.daemon, shimUnit)
	if dryRun {
		return nil
	}
	running, err := s.Node.Running(ctx, p.config.Containerd.Address)
	if err != nil {
		return err
	}
	former := *j
	j.State = journal.Upgrading
	j.Adopt(files)
	if err := j.Save(s.Root); err != nil {
		return err
	}
	changes := journal.Journal{Files: files}
	err = s.replace(ctx, p, func() error { return changes.Apply(s.Root) }, running)
	if err == nil {
		j.State = journal.Installed
		err = j.Save(s.Root)
	}
	if err != nil {
		return s.undoUpgrade(ctx, p, &former, &changes, running, err)
	}
	fmt.Fprintln(s.Out, "\nThis node has this version.")
	return nil
}

// mayUpgrade returns an error if the installation is not as it was left.
func (s *Setup) mayUpgrade(ctx context.Context, j *journal.Journal) error {
	if j.State == journal.Upgrading {
		return nil // files of both versions
	}
	changed, err := j.Changed(s.Root)
	if err != nil {
		return err
	}
	changed = slices.DeleteFunc(changed, func(name string) bool { return name == "/"+configPath })
	if len(changed) > 0 {
		return fmt.Errorf("nodevirt is installed, but these files have changed since: %s; "+
			"run \"nodevirt node uninstall --force\", then install again", strings.Join(changed, ", "))
	}
	if !s.Node.Enabled(ctx, shimUnit) {
		return fmt.Errorf("nodevirt is installed, but %s is disabled: run systemctl enable --now %s", shimUnit, shimUnit)
	}
	return nil
}

// replace changes the files, restarts libvirt and the shim, and waits until the shim serves all
// containers that ran.
func (s *Setup) replace(ctx context.Context, p plan, files func() error, running map[string]string) error {
	return s.run(ctx, []step{
		{"Write the files", func(context.Context) error { return files() }},
		{"Reload systemd", s.reload},
		{"Restart " + string(p.daemon), func(ctx context.Context) error { return s.restartLibvirt(ctx, p.daemon) }},
		{"Restart " + shimUnit, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, s.Wait)
			defer cancel()
			return s.Node.Systemctl(ctx, "restart", shimUnit)
		}},
		{"Wait for the shim", func(ctx context.Context) error { return s.untilServing(ctx, p.config.Listen) }},
		{"Check that containers still run", func(ctx context.Context) error { return s.checkRunning(ctx, p.config.Listen, running) }},
	})
}

// untilServing waits until the shim answers.
func (s *Setup) untilServing(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, s.Wait)
	defer cancel()
	for {
		_, err := s.Node.Running(ctx, socket)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (gave up after %s)", err, s.Wait)
		case <-time.After(s.Poll):
		}
	}
}

// undoUpgrade writes the former files again after a failure, and returns the cause.
func (s *Setup) undoUpgrade(
	ctx context.Context, p plan, former, changes *journal.Journal, running map[string]string, cause error,
) error {
	fmt.Fprintf(s.Out, "\nThe upgrade failed: %v\nRestore the version before.\n", cause)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	err := s.replace(ctx, p, func() error { return changes.Restore(s.Root) }, running)
	if err == nil {
		err = former.Save(s.Root)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%w; the version before is not fully restored, install it again", cause), err)
	}
	return fmt.Errorf("%w; the node has the version before", cause)
}
