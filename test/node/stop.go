package node

import (
	"context"
	"errors"
	"fmt"
	"net/rpc"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Stop ends the node: what was added to it; its pods through the CRI, so that networks and cgroups go as on any node;
// then its daemons; then its first process, and with it the namespaces and whatever is left in
// them. The state folder stays and makes the next start quicker; Purge removes it. A pod that
// could not be stopped politely is killed, and is no error.
func (n *Node) Stop(ctx context.Context) error {
	unlock, err := n.o.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := n.killAdded(ctx); err != nil {
		fmt.Fprintf(n.o.Log, "what was added to the node ends with it: %v\n", err)
	}
	if err := n.RemovePods(ctx); err != nil {
		fmt.Fprintf(n.o.Log, "pods are killed, as they could not be stopped: %v\n", err)
	}
	for _, name := range own {
		if s, err := n.state(name); err != nil || s.PID == 0 || s.Ended {
			continue
		}
		if err := n.Kill(ctx, name, endSignal(name)); err != nil {
			fmt.Fprintf(n.o.Log, "%s is killed: %v\n", name, err)
		}
	}
	if err := n.end(ctx); err != nil {
		return fmt.Errorf("end node %s: %w", n.o.Name, err)
	}
	if err := n.removeDevices(); err != nil {
		return err
	}
	if err := os.RemoveAll(n.o.run()); err != nil {
		return fmt.Errorf("empty folder: %w", err)
	}
	if err := removeCgroups(ctx, n.o.Name); err != nil {
		return err
	}
	return removeEmptyCgroups(parentless...)
}

// own are the components that a node has by itself, in the order in which they stop.
var own = []string{Shim, Tgtd, Libvirtd, Containerd, Stargz, Registry}

// killAdded kills what was added: a kubelet would start again the pods that must be removed.
func (n *Node) killAdded(ctx context.Context) error {
	all, err := n.Components()
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.Ended || slices.Contains(own, s.Name) {
			continue
		}
		if err := n.Kill(ctx, s.Name, syscall.SIGKILL); err != nil {
			return err
		}
	}
	return nil
}

// endSignal is what ends a component.
func endSignal(component string) syscall.Signal {
	if component == Tgtd {
		return syscall.SIGKILL // it ignores all others, see deploy/systemd
	}
	return syscall.SIGTERM
}

// end kills the node's first process and waits until it is gone. The kernel lets it go only when
// nothing else runs in its namespaces.
func (n *Node) end(ctx context.Context) error {
	fd, err := unix.PidfdOpen(n.PID(), 0)
	if errors.Is(err, unix.ESRCH) {
		return n.detach()
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", n.PID(), err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", n.PID(), err)
	}
	for ctx.Err() == nil {
		ended, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for process %d: %w", n.PID(), err)
		}
		if ended > 0 {
			return n.detach()
		}
	}
	return fmt.Errorf("wait for process %d: %w", n.PID(), context.Cause(ctx))
}

// removeDevices removes the nodes in /dev of VMs that were killed with the node: a machine's /dev ends with its power.
func (n *Node) removeDevices() error {
	all, err := n.devices(context.Background())
	for _, path := range all {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

func (n *Node) detach() error {
	err := n.client.Close()
	if errors.Is(err, rpc.ErrShutdown) {
		err = nil // the node's end closed it
	}
	if n.lifeline != nil {
		err = errors.Join(err, n.lifeline.Close())
		n.lifeline = nil
	}
	return err
}

// RemovePods stops and removes all pods: through the shim, and what is left through containerd.
func (n *Node) RemovePods(ctx context.Context) error {
	var errs []error
	for _, name := range []string{Shim, Containerd} {
		s, err := n.state(name)
		if err != nil {
			return err
		}
		if s.PID == 0 || s.Ended {
			continue
		}
		socket := n.ContainerdSocket()
		if name == Shim {
			socket = n.ShimSocket()
		}
		if err := removePods(ctx, socket); err != nil {
			errs = append(errs, fmt.Errorf("remove pods through %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func removePods(ctx context.Context, socket string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	conn, err := DialCRI(socket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	client := cri.NewRuntimeServiceClient(conn)
	list, err := client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	var group errgroup.Group
	group.SetLimit(8)
	errs := make([]error, len(list.Items))
	for i, pod := range list.Items {
		group.Go(func() error {
			errs[i] = removePod(ctx, client, pod)
			return nil
		})
	}
	_ = group.Wait() // no member returns an error: each pod must be tried
	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return err == nil })...)
}

func removePod(ctx context.Context, c cri.RuntimeServiceClient, pod *cri.PodSandbox) error {
	if _, err := c.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: pod.Id}); err != nil {
		return fmt.Errorf("stop pod %s: %w", pod.Metadata.GetName(), err)
	}
	if _, err := c.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: pod.Id}); err != nil {
		return fmt.Errorf("remove pod %s: %w", pod.Metadata.GetName(), err)
	}
	return nil
}
