package vms

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
)

// InspectCommand returns the command nodevirt inspect.
func InspectCommand() *cobra.Command {
	var (
		endpoint string
		format   cli.Format
		timeline bool
	)
	cmd := &cobra.Command{
		Use:   "inspect VM",
		Short: "Show the details of a VM",
		Long: `Shows a VM: its hardware, disks with the space that they take on the node, network,
QEMU's process and uptime; with -o xml the domain as passed to libvirt, which
contains no secrets.

With --timeline, shows the phases of its start: when each began, counted from the
first, and how long it took. "agent" is the time from the guest's first instruction
until its guest agent was there. JSON has them too.

VM is the name of the pod or of the VirtualMachine, NAMESPACE/NAME, a prefix of the container's or the pod's ID,
or libvirt's name of the domain.`,
		Example: `  nodevirt inspect hello
  nodevirt inspect hello -o json | jq .qemuPID
  nodevirt inspect hello --timeline
  nodevirt inspect hello -o xml`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeVM(&endpoint),
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeline && format.String() == "xml" {
				return errors.New("--timeline: not with -o xml; use -o table or -o json")
			}
			v, err := found(cmd.Context(), endpoint, args[0])
			if err != nil {
				return err
			}
			switch w := cmd.OutOrStdout(); format.String() {
			case "json":
				return cli.JSON(w, detail(v, time.Now()))
			case "xml":
				if v.Err != nil {
					return fmt.Errorf("inspect VM %s: %w", v.Name(), v.Err)
				}
				if v.Info.DomainXML == "" {
					return fmt.Errorf("show the domain of VM %s: the VM does not run (%s)", v.Name(), v.stateText())
				}
				_, err := fmt.Fprintln(w, v.Info.DomainXML)
				return err
			default:
				if timeline {
					return showTimeline(w, detail(v, time.Now()))
				}
				return describe(w, detail(v, time.Now()))
			}
		},
	}
	cmd.Flags().BoolVar(&timeline, "timeline", false, "show the phases of the VM's start")
	cli.EndpointFlag(cmd, &endpoint)
	cli.OutputFlag(cmd, &format, "table", "json", "xml")
	return cmd
}

func found(ctx context.Context, endpoint, want string) (VM, error) {
	n, err := cli.Dial(ctx, endpoint)
	if err != nil {
		return VM{}, err
	}
	defer n.Close()
	return Find(ctx, n, want)
}

// completeVM completes names of VMs.
func completeVM(endpoint *string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		list, err := listed(cmd.Context(), *endpoint, true)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for _, v := range list {
			names = append(names, v.Name())
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func describe(w io.Writer, d Detail) error {
	rows := [][]string{
		{"Name:", d.Name}, {"Namespace:", d.Namespace}, {"Container:", d.ContainerID}, {"Pod sandbox:", d.SandboxID},
		{"State:", d.stateText()},
	}
	if d.Error != "" {
		return cli.Table(w, append(rows, []string{"Image:", d.Image}, []string{"Created:", d.CreatedAt},
			[]string{"Error:", "the shim has no details: " + d.Error}))
	}
	if d.Message != "" {
		rows = append(rows, []string{"Message:", d.Message})
	}
	if d.Uptime != "" {
		rows = append(rows, []string{"Started:", d.StartedAt})
		if d.FinishedAt != "" {
			rows = append(rows, []string{"Ended:", d.FinishedAt})
		}
		rows = append(rows, []string{"Uptime:", d.Uptime})
	}
	rows = append(rows,
		[]string{"Image:", d.Image}, []string{"Image ID:", d.ImageID},
		[]string{"CPUs:", fmt.Sprintf("%d (%d sockets, %d cores, %d threads)", d.CPUs,
			d.vm.Info.Spec.CPU.Sockets, d.vm.Info.Spec.CPU.Cores, d.vm.Info.Spec.CPU.Threads)},
		[]string{"Memory:", cli.Bytes(d.Memory)},
		[]string{"Machine:", d.Machine + ", accelerator " + d.Accelerator},
		[]string{"Domain:", d.Domain + ", UUID " + d.UUID})
	if d.QEMUPID != 0 {
		rows = append(rows, []string{"QEMU:", fmt.Sprintf("process %d, user %d", d.QEMUPID, d.vm.Info.Domain.UID)})
	}
	for _, k := range d.Disks {
		rows = append(rows, []string{"Disk " + k.Name + ":", k.text()})
	}
	for _, n := range d.NICs {
		rows = append(rows, []string{"NIC " + n.Name + ":",
			fmt.Sprintf("%s, MAC %s, MTU %d, tap %s", n.addresses(), n.MAC, n.MTU, n.Tap)})
		if n.Gateway != "" {
			rows = append(rows, []string{"Gateway:", n.Gateway})
		}
	}
	if a := d.Agent; a != nil {
		rows = append(rows, agentRows(*a)...)
	}
	rows = append(rows, []string{"Console:", d.ConsoleSocket}, []string{"Log:", d.LogPath})
	return cli.Table(w, rows)
}

func (d Detail) stateText() string {
	if d.Paused != "" {
		return d.State + ", but its guest is stopped: " + d.Paused
	}
	if d.ExitCode == nil {
		return d.State
	}
	return fmt.Sprintf("%s, code %s, %s", d.State, strconv.Itoa(int(*d.ExitCode)), d.Reason)
}

func (n NICDetail) addresses() string {
	all := slices.DeleteFunc([]string{n.Address, n.IPv6}, func(a string) bool { return a == "" })
	if len(all) == 0 {
		return "no address"
	}
	return strings.Join(all, " and ")
}

func (k DiskDetail) text() string {
	switch {
	case k.Source == "empty":
		return fmt.Sprintf("%s, empty at first, on %s, takes %s", cli.Bytes(k.VirtualSize), k.Bus, cli.Bytes(k.Allocated))
	case k.Source == "claim":
		return fmt.Sprintf("PVC, on %s, volume %s", k.Bus, k.File)
	case k.Path == "":
		return fmt.Sprintf("%s, on %s", k.Source, k.Bus)
	}
	from := "the image"
	if k.Image != "" {
		from = "image " + k.Image
	}
	text := fmt.Sprintf("%s from %s (%s, %s, %s), on %s, mode %s",
		cli.Bytes(k.VirtualSize), from, k.Path, k.Format, cli.Bytes(k.Size), k.Bus, k.Mode)
	if k.ReadOnly {
		return text + ", read-only"
	}
	return fmt.Sprintf("%s, takes %s", text, cli.Bytes(k.Allocated))
}
