package vms

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
)

// PSCommand returns the command nodevirt ps.
func PSCommand() *cobra.Command {
	var (
		endpoint   string
		all, quiet bool
		format     cli.Format
	)
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List this node's VMs",
		Long: `Lists the VMs that run on this node; with -a also those that have ended or have not
been started. It omits ordinary containers; crictl ps lists both.`,
		Example: `  nodevirt ps
  nodevirt ps -a -o json | jq -r '.[].ip'
  crictl logs $(nodevirt ps -q | head -1)`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := listed(cmd.Context(), endpoint, all)
			if err != nil {
				return err
			}
			switch w := cmd.OutOrStdout(); {
			case quiet:
				return ids(w, list)
			case format.String() == "json":
				return cli.JSON(w, details(list, time.Now()))
			default:
				defer remark(cmd.ErrOrStderr(), list)
				return cli.Table(w, rows(list, time.Now()))
			}
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also show VMs that do not run")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "show container IDs only")
	cli.EndpointFlag(cmd, &endpoint)
	cli.OutputFlag(cmd, &format, "table", "json")
	cmd.MarkFlagsMutuallyExclusive("quiet", "output")
	return cmd
}

func listed(ctx context.Context, endpoint string, all bool) ([]VM, error) {
	n, err := cli.Dial(ctx, endpoint)
	if err != nil {
		return nil, err
	}
	defer n.Close()
	list, err := List(ctx, n)
	if err != nil || all {
		return list, err
	}
	var running []VM
	for _, v := range list {
		if v.mayRun() {
			running = append(running, v)
		}
	}
	return running, nil
}

func ids(w io.Writer, list []VM) error {
	for _, v := range list {
		if _, err := fmt.Fprintln(w, v.Status.GetId()); err != nil {
			return err
		}
	}
	return nil
}

func rows(list []VM, now time.Time) [][]string {
	table := [][]string{{"VM", "NAMESPACE", "CONTAINER ID", "IMAGE", "STATE", "CPUS", "MEMORY", "IP", "AGE"}}
	for _, v := range list {
		cpus, memory, ip := strconv.Itoa(int(v.CPUs())), cli.Bytes(v.Info.Spec.Memory), v.IP()
		if v.Err != nil {
			cpus, memory, ip = "?", "?", "?"
		}
		table = append(table, []string{
			v.Name(), v.Namespace(), cli.ShortID(v.Status.GetId()), v.Image(), v.stateText(),
			cpus, memory, ip, cli.Age(now.Sub(time.Unix(0, v.Status.GetCreatedAt()))),
		})
	}
	return table
}

// remark prints why the rows of some VMs are incomplete.
func remark(w io.Writer, list []VM) {
	for _, v := range list {
		if v.Err == nil && v.State() != "Exited" && v.Status.GetMessage() != "" {
			fmt.Fprintf(w, "VM %s/%s (%s): %s\n", v.Namespace(), v.Name(), cli.ShortID(v.Status.GetId()), cli.Clean(v.Status.GetMessage()))
		}
		if v.Err != nil {
			fmt.Fprintf(w, "VM %s/%s (%s): status not available: %s\n",
				v.Namespace(), v.Name(), cli.ShortID(v.Status.GetId()), cli.Clean(v.Err.Error()))
		}
	}
}

// stateText returns the VM's state and, after its end, how it ended.
func (v VM) stateText() string {
	switch {
	case v.State() == "Exited" && v.Err == nil:
		return fmt.Sprintf("Exited (%d)", v.Status.GetExitCode())
	case v.Status.GetReason() != "" && v.State() != "Exited": // the node's witnesses disagree
		return fmt.Sprintf("%s (%s)", v.State(), v.Status.GetReason())
	}
	return v.State()
}
