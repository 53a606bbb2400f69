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

// ConsoleCommand returns the command nodevirt console.
func ConsoleCommand() *cobra.Command {
	var endpoint string
	cmd := &cobra.Command{
		Use:   "console VM",
		Short: "Connect to a VM's serial console",
		Long: `Connects the terminal to a VM's serial console; ctrl-] disconnects. Without a
terminal it prints the VM's log, and follows the log until the VM ends.

The output begins with the last 64 KiB that the guest has printed; the log has
everything. Several terminals can connect at once: all show the same, and all can
type. If the VM ends meanwhile, the exit code is that of the VM.

A serial line does not transmit the window size. For full-screen programs type
"stty rows 50 columns 132" in the guest, or run "resize" there.`,
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
				return fmt.Errorf("connect to VM %s: the VM does not run (%s); its log is %s", v.Name(), v.stateText(), v.Status.GetLogPath())
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

// Connect connects a command's user to a VM's console until the VM ends. It returns
// the errors of package console.
func Connect(ctx context.Context, n *cli.Node, v VM, cmd *cobra.Command) error {
	if v.Err != nil {
		return fmt.Errorf("connect to VM %s: %w", v.Name(), v.Err)
	}
	in, ok := cmd.InOrStdin().(*os.File)
	if ok && cli.IsTerminal(in) && cli.IsTerminal(cmd.OutOrStdout()) {
		fmt.Fprintf(cmd.ErrOrStderr(), "Connected to the console of VM %s; ctrl-] disconnects.\n", v.Name())
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
		return fmt.Errorf("console of VM %s: %w; the VM continues to run: once the shim is back, run nodevirt console %s", v.Name(), err, v.Name())
	}
	return err
}

// Ending waits for the end of a VM, and prints to w that the VM has powered off. It
// returns any other end as an error with the VM's exit code.
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

// waitPoll is the pause between two requests for a container's status.
const waitPoll = 200 * time.Millisecond

// Wait returns a container's status after its end, or nil if the container is removed.
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
		// The shim may be restarting; the VM continues to run.
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(waitPoll):
		}
	}
}
