package vms

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
	"github.com/nodevirt/nodevirt/shim/stream/client"
)

// vncPort is the port that a port-forward connects to the display.
const vncPort = 5900

// VNCCommand returns the command nodevirt vnc.
func VNCCommand() *cobra.Command {
	var endpoint, listen, socket string
	cmd := &cobra.Command{
		Use:   "vnc VM",
		Short: "Serve a VM's display to VNC viewers on this node",
		Long: `Serves a VM's display by VNC on a loopback port, or on a unix socket, until the VM
ends or you press ctrl-C. It prints the address to standard output. It does not start
a viewer.

VNC has no password here: every user of this node can connect to a loopback port. Only
its owner can connect to the socket of --socket.

The VM must have a display: use nodevirt run --display, or set
autoattachGraphicsDevice in its annotation nodevirt.io/vmi.`,
		Example: `  nodevirt vnc web
  nodevirt vnc web --listen 127.0.0.1:5901
  nodevirt vnc web --socket /root/web.vnc`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeVM(&endpoint),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			n, err := cli.Dial(ctx, endpoint)
			if err != nil {
				return err
			}
			defer n.Close()
			v, err := Find(ctx, n, args[0])
			if err != nil {
				return err
			}
			if err := v.hasDisplay(); err != nil {
				return err
			}
			l, err := listenForViewers(ctx, listen, socket)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), l.Addr())
			fmt.Fprintf(cmd.ErrOrStderr(), "Serving the display of VM %s to VNC viewers; press ctrl-C to stop.\n", v.Name())
			d := display{node: n, vm: v, errOut: cmd.ErrOrStderr()}
			return d.serve(ctx, l)
		},
	}
	cli.EndpointFlag(cmd, &endpoint)
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "the loopback `address` and port to listen on; port 0 selects a free port")
	cmd.Flags().StringVar(&socket, "socket", "", "the `path` of a unix socket to listen on instead")
	cmd.MarkFlagsMutuallyExclusive("listen", "socket")
	return cmd
}

func (v VM) hasDisplay() error {
	switch {
	case v.Err != nil:
		return fmt.Errorf("show the display of VM %s: %w", v.Name(), v.Err)
	case !v.runs():
		return fmt.Errorf("VM %s does not run (%s)", v.Name(), v.stateText())
	case v.Info.DisplaySocket == "":
		return fmt.Errorf("VM %s has no display: run it with --display, or with "+
			"\"autoattachGraphicsDevice\": true in its pod's annotation nodevirt.io/vmi", v.Name())
	}
	return nil
}

// listenForViewers listens on an address that only users of this node can reach.
func listenForViewers(ctx context.Context, address, socket string) (net.Listener, error) {
	if socket != "" {
		defer syscall.Umask(syscall.Umask(0o177))
		l, err := new(net.ListenConfig).Listen(ctx, "unix", socket)
		if err != nil {
			return nil, fmt.Errorf("--socket: %w", err)
		}
		return l, nil
	}
	if a, err := netip.ParseAddrPort(address); err != nil || !a.Addr().IsLoopback() {
		return nil, fmt.Errorf("--listen %q: want an address and port on loopback, such as 127.0.0.1:5901: VNC has no password", address)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	return l, nil
}

// display is a display that is served to viewers.
type display struct {
	node   *cli.Node
	vm     VM
	errOut io.Writer
}

// serve connects viewers to the display until the VM or ctx ends, and closes l.
func (d display) serve(ctx context.Context, l net.Listener) error {
	watching, end := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer end()
	all.Go(func() {
		defer end()
		_, _ = Wait(watching, d.node, d.vm.Status.GetId()) // Ending reports how
	})
	defer context.AfterFunc(watching, func() { l.Close() })()
	for {
		viewer, err := l.Accept()
		if watching.Err() != nil {
			break
		}
		if err != nil {
			return fmt.Errorf("wait for a viewer: %w", err)
		}
		all.Go(func() {
			if err := d.join(watching, viewer); err != nil && watching.Err() == nil {
				fmt.Fprintln(d.errOut, "nodevirt:", err)
			}
		})
	}
	if ctx.Err() != nil {
		return nil // ctrl-C
	}
	return Ending(ctx, d.node, d.vm, d.errOut)
}

// join opens a port-forward for each viewer, so that a restart of the shim
// disconnects only the current viewers.
func (d display) join(ctx context.Context, viewer net.Conn) error {
	defer viewer.Close()
	reply, err := d.node.Pods.PortForward(ctx, &runtimeapi.PortForwardRequest{
		PodSandboxId: d.vm.Pod.GetId(), Port: []int32{vncPort},
	})
	if err != nil {
		return fmt.Errorf("forward the display of VM %s: %w", d.vm.Name(), cli.Plain(err))
	}
	ports, err := client.DialPorts(ctx, reply.GetUrl())
	if err != nil {
		return fmt.Errorf("forward the display of VM %s: %w", d.vm.Name(), err)
	}
	defer context.AfterFunc(ctx, func() { _ = ports.Close(); viewer.Close() })()
	defer func() { _ = ports.Close() }()
	if err := ports.Join(vncPort, viewer); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, syscall.EPIPE) { // the viewer left
		return fmt.Errorf("the display of VM %s: %w", d.vm.Name(), err)
	}
	return nil
}
