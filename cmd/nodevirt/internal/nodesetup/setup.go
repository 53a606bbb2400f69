// Package nodesetup implements nodevirt node install and uninstall: they make a Kubernetes node run
// VMs, and restore it.
//
// It owns the changes, their order, and the rollback. It leaves to package layout where Kubernetes
// keeps its files, to package journal the originals, and to package host the calls to systemd, CRI
// and the API server.
package nodesetup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/nodesetup/host"
	"github.com/nodevirt/nodevirt/shim/config"
)

// Label is the label of nodes with the shim, which the RuntimeClass selects.
const (
	Label      = "nodevirt.io/node"
	labelValue = "true"
)

// undoTime bounds a rollback, which runs even if the command was interrupted.
const undoTime = 10 * time.Minute

// node is what an installation calls on the node, apart from files. [host.Host] implements it.
type node interface {
	// Check returns an error if the node cannot run VMs for a reason that the installation does not
	// remove.
	Check(ctx context.Context, c config.Config) error
	// Systemctl runs systemctl.
	Systemctl(ctx context.Context, args ...string) error
	// Stop stops a unit. One that does not run, or does not exist, is no error.
	Stop(ctx context.Context, unit string) error
	// Enabled reports whether systemd starts a unit at boot.
	Enabled(ctx context.Context, unit string) bool
	// Status returns the Node object's state.
	Status(ctx context.Context, kubeconfig string) (host.Status, error)
	// SetLabel sets a label of the Node object, or removes it if value is nil.
	SetLabel(ctx context.Context, kubeconfig, name string, value *string) error
	// Running returns the running containers, by ID, with a name for messages.
	Running(ctx context.Context, socket string) (map[string]string, error)
	// Failed reports whether a container was stopped: not if it ended with exit code 0 or is removed.
	Failed(ctx context.Context, socket, id string) (bool, error)
	// VMs returns the names of the running VMs.
	VMs(ctx context.Context, socket string) ([]string, error)
	// Unlimit removes the table of nftables that keeps VMs from the node's network.
	Unlimit(ctx context.Context) error
	// RemoveVMs shuts all VMs down and removes their pods from the node.
	RemoveVMs(ctx context.Context, socket string) error
}

// Setup installs and uninstalls.
type Setup struct {
	// Root is the node's root folder.
	Root *os.Root
	// Node is the node that it belongs to.
	Node node
	// Out gets the progress.
	Out io.Writer
	// Programs is the folder of nodevirt-shim and nodevirt-view.
	Programs string
	// Wait bounds the time until the node is ready.
	Wait time.Duration
	// Poll is the time between two looks at the node.
	Poll time.Duration
}

// step is a part of an installation.
type step struct {
	name string
	do   func(context.Context) error
}

func (s *Setup) run(ctx context.Context, steps []step) error {
	for _, st := range steps {
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("%s: %w", st.name, err)
		}
		fmt.Fprintf(s.Out, "%s\n", st.name)
		if err := st.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", st.name, err)
		}
	}
	return nil
}

// restartLibvirt restarts libvirt's daemon with its sockets. systemd cannot change a socket's mode
// while the service holds it. Running VMs are not affected.
func (s *Setup) restartLibvirt(ctx context.Context, d daemon) error {
	units := d.units()
	if err := s.Node.Systemctl(ctx, append([]string{"stop"}, units...)...); err != nil {
		return err
	}
	return s.Node.Systemctl(ctx, "start", units[len(units)-1])
}

// lockPath is a file that one installation at a time locks.
const lockPath = "run/nodevirt-node.lock"

// lock keeps other installations off the node until the returned function is called.
func (s *Setup) lock() (unlock func(), err error) {
	if err := s.Root.MkdirAll(path.Dir(lockPath), 0o755); err != nil {
		return nil, fmt.Errorf("lock the installation: %w", err)
	}
	f, err := s.Root.OpenFile(lockPath, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the installation: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock /%s: %w; another installation runs", lockPath, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// untilReady waits until the kubelet has reported the node as ready since the given time, with the
// runtime handler or, if served is false, without.
func (s *Setup) untilReady(ctx context.Context, kubeconfig, handler string, served bool, since time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, s.Wait)
	defer cancel()
	last := errors.New("the kubelet has not reported since its restart")
	for {
		st, err := s.Node.Status(ctx, kubeconfig)
		switch {
		case err != nil:
			last = err
		// The API server stores whole seconds.
		case st.Heartbeat.Before(since.Truncate(time.Second)):
		case !st.Ready:
			last = fmt.Errorf("the node is not ready: %s", st.Message)
		case slices.Contains(st.Handlers, handler) != served && served:
			last = fmt.Errorf("the kubelet reports no runtime handler %q", handler)
		case slices.Contains(st.Handlers, handler) != served:
			last = fmt.Errorf("the kubelet still reports the runtime handler %q", handler)
		default:
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (gave up after %s)", last, s.Wait)
		case <-time.After(s.Poll):
		}
	}
}

// checkRunning returns an error if a container that ran before was stopped.
func (s *Setup) checkRunning(ctx context.Context, socket string, before map[string]string) error {
	now, err := s.Node.Running(ctx, socket)
	if err != nil {
		return err
	}
	var lost []string
	for id, name := range before {
		if _, runs := now[id]; runs {
			continue
		}
		failed, err := s.Node.Failed(ctx, socket, id)
		if err != nil {
			return err
		}
		if failed {
			lost = append(lost, name)
		}
	}
	if len(lost) > 0 {
		slices.Sort(lost)
		return fmt.Errorf("containers stopped: %s", strings.Join(lost, ", "))
	}
	return nil
}
