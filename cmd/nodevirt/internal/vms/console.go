package vms

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/console"
)

// ConsoleCommand is nodevirt console.
func ConsoleCommand() *cobra.Command {
	var endpoint string
	cmd := &cobra.Command{
		Use:   "console VM",
		Short: "Connect to a VM's serial console",
		Long: `Connects the terminal to a VM's serial console; ctrl-] leaves it. Without a
terminal it writes the VM's log and goes on with it until the VM ends.

It begins with the last 64 KiB that the guest has printed; the log has everything.
Several terminals may be connected at once: all see the same, and all may type. If
the VM ends meanwhile, the exit code is its own.

A serial line carries no window size: where a full-screen program needs it, type
"stty rows 50 columns 132" in the guest, or run its "resize".`,
		Example:           "  nodevirt console hello",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeVM(&endpoint),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := cli.Dial(cmd.Context(), endpoint)
			if err != nil {
				return err
			}
			defer n.Close()
			v, err := Find(cmd.Context(), n, args[0])
			if err != nil {
				return err
			}
			if !v.runs() {
				return fmt.Errorf("VM %s does not run (%s): its log is %s", v.Name(), v.stateText(), v.Status.GetLogPath())
			}
			err = Connect(cmd.Context(), n, v, cmd)
			if errors.Is(err, console.ErrLeft) || cmd.Context().Err() != nil {
				return nil
			}
			if err != nil {
				return err
			}
			return Ending(cmd.Context(), n, v, cmd.ErrOrStderr())
		},
	}
	cli.EndpointFlag(cmd, &endpoint)
	return cmd
}

// Connect shows a VM's console to a command's user until the VM ends. Errors
// are the console's.
func Connect(ctx context.Context, n *cli.Node, v VM, cmd *cobra.Command) error {
	if v.Err != nil {
		return fmt.Errorf("VM %s: the shim can't tell of it: %w", v.Name(), v.Err)
	}
	in, ok := cmd.InOrStdin().(*os.File)
	if ok && cli.IsTerminal(in) && cli.IsTerminal(cmd.OutOrStdout()) {
		fmt.Fprintf(cmd.ErrOrStderr(), "The console of VM %s; ctrl-] leaves it.\n", v.Name())
		return attach(ctx, n, v, in, cmd.OutOrStdout())
	}
	ended := make(chan struct{})
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		if _, err := Wait(watching, n, v.Status.GetId()); err == nil {
			close(ended)
		}
	}()
	return console.Follow(ctx, v.Status.GetLogPath(), ended, cmd.OutOrStdout())
}

func attach(ctx context.Context, n *cli.Node, v VM, in *os.File, out io.Writer) error {
	reply, err := n.Pods.Attach(ctx, &runtimeapi.AttachRequest{
		ContainerId: v.Status.GetId(), Stdin: true, Stdout: true, Tty: true,
	})
	if err != nil {
		return fmt.Errorf("attach to VM %s: %w", v.Name(), err)
	}
	err = console.Attach(ctx, reply.GetUrl(), in, out)
	if errors.Is(err, console.ErrCut) {
		return fmt.Errorf("the console of VM %s: %w: the VM runs on; once the shim is back: nodevirt console %s", v.Name(), err, v.Name())
	}
	return err
}

// Ending tells on w that a VM has powered off; any other end is an error with the
// VM's exit code. It waits for the end, which may be about to come.
func Ending(ctx context.Context, n *cli.Node, v VM, w io.Writer) error {
	status, err := Wait(ctx, n, v.Status.GetId())
	if err != nil || status == nil {
		return err
	}
	if status.GetExitCode() == 0 {
		fmt.Fprintf(w, "VM %s has powered off.\n", v.Name())
		return nil
	}
	return &cli.ExitError{
		Code: int(status.GetExitCode()),
		Err:  fmt.Errorf("VM %s ended (%s): %s", v.Name(), status.GetReason(), status.GetMessage()),
	}
}

// waitPoll is the pause between two looks at a container.
const waitPoll = 200 * time.Millisecond

// Wait returns a container's status when it has ended; without one, it has been
// removed.
func Wait(ctx context.Context, n *cli.Node, id string) (*runtimeapi.ContainerStatus, error) {
	for {
		reply, err := n.Pods.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
		switch {
		case cli.NotFound(err):
			return nil, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err == nil && reply.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED:
			return reply.GetStatus(), nil
		}
		// A shim that is away comes back: the VM runs on meanwhile.
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(waitPoll):
		}
	}
}
