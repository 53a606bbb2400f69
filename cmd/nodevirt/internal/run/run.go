// Package run implements the command nodevirt run, which runs a VM from a registry
// disk on this node without a cluster.
//
// It owns the steps that a kubelet does in a cluster: it pulls the image, creates
// the pod, and undoes the steps if one fails. It leaves running VMs to package vms,
// and everything else to the shim.
package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/console"
	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/vms"
)

// options are the command's flags.
type options struct {
	endpoint, handler          string
	containerd                 string
	name, namespace            string
	memory, cpus               string
	userData, sshKeys          string // paths
	diskMode                   string
	pull                       string
	disks                      []string
	remove, detach, display    bool
	logDirectory, cgroupParent string
}

// Command returns the command nodevirt run.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "run IMAGE",
		Short: "Run a VM from a registry disk on this node",
		Long: `Pulls a registry disk if needed, runs a VM from it in its own pod, and connects to
its serial console; ctrl-] disconnects. Without a terminal it prints the VM's log
until the VM ends; ctrl-C stops that. The exit code is that of the VM: 0 if the
guest has powered off.

The VM is an ordinary pod of this node: crictl, nodevirt ps and nodevirt inspect show
it; nodevirt rm removes it.

--disk adds a disk: from another image, or an empty one. Options are name=,
path= (in the image), bus= (virtio, scsi, sata, usb), serial=, boot= (an order), cache=,
io=, errors= (stop, report, ignore, enospace), readonly and cdrom. Without options an
ISO image is a CD.

On a node of a cluster use kubectl instead: the kubelet soon removes pods that it did
not create.`,
		Example: `  nodevirt run example.com/disks/debian:12
  nodevirt run example.com/disks/debian:12 --name web --memory 2Gi --cpus 2 -d
  nodevirt run example.com/disks/debian:12 --disk example.com/disks/tools:1,cdrom --disk size=10Gi,serial=scratch
  nodevirt run example.com/disks/debian:12 --rm --cloud-init user-data.yaml --ssh-key ~/.ssh/id_ed25519.pub`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), cmd, args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.name, "name", "", "the VM's `name`, a DNS label (default: from the image's)")
	f.StringVar(&o.namespace, "namespace", "default", "the pod's `namespace`")
	f.StringVarP(&o.memory, "memory", "m", "512Mi", "the guest's RAM, a Kubernetes `quantity`")
	f.StringVar(&o.cpus, "cpus", "1", "how many CPUs it has, a Kubernetes `quantity`; parts limit their use, as 1.5 does 2 vCPUs")
	f.StringVar(&o.userData, "cloud-init", "", "a `file` with cloud-init user data")
	f.StringVar(&o.diskMode, "disk-mode", "", "how the disk reaches the VM, `mode` file, raw or iscsi; default: the node's")
	f.StringVar(&o.sshKeys, "ssh-key", "", "a `file` with public keys that may log in, for cloud-init")
	f.StringArrayVar(&o.disks, "disk", nil, "a further `disk`: IMAGE[,OPTION]… or size=QUANTITY[,OPTION]…; may be repeated")
	f.StringVar(&o.pull, "pull", pullMissing, "`when` to pull the image: missing, always or never")
	f.BoolVarP(&o.detach, "detach", "d", false, "leave the VM running and print its container's id")
	f.BoolVar(&o.display, "display", false, "give the VM a display; nodevirt vnc shows it")
	f.BoolVar(&o.remove, "rm", false, "remove the VM at the end, also when you leave the console")
	f.StringVar(&o.handler, "runtime-handler", "vm", "the shim's runtime `handler` for VMs")
	f.StringVar(&o.logDirectory, "log-directory", "/var/log/pods", "the `folder` of pods' logs")
	f.StringVar(&o.cgroupParent, "cgroup-parent", vms.CgroupParent, "the `cgroup` that holds the pod's")
	cmd.MarkFlagsMutuallyExclusive("detach", "rm")
	_ = cmd.RegisterFlagCompletionFunc("pull", cobra.FixedCompletions(
		[]string{pullMissing, pullAlways, pullNever}, cobra.ShellCompDirectiveNoFileComp))
	cli.EndpointFlag(cmd, &o.endpoint)
	cli.ContainerdFlag(cmd, &o.containerd)
	return cmd
}

func (o options) run(ctx context.Context, cmd *cobra.Command, image string) error {
	r, err := o.request(image)
	if err != nil {
		return err
	}
	n, err := cli.Dial(ctx, o.endpoint)
	if err != nil {
		return err
	}
	defer n.Close()
	l := launch{node: n, options: o, errOut: cmd.ErrOrStderr()}
	if err := l.start(ctx, r); err != nil {
		return err
	}
	if o.detach {
		fmt.Fprintln(cmd.OutOrStdout(), l.container)
		fmt.Fprintf(cmd.ErrOrStderr(), "VM %s runs. Next: nodevirt console %s, nodevirt inspect %s, nodevirt rm %s\n",
			r.name, r.name, r.name, r.name)
		return nil
	}
	err = l.watch(ctx, cmd)
	if !o.remove {
		return err
	}
	return errors.Join(err, l.removeAtEnd(ctx))
}

// watch shows the console and returns the VM's exit code.
func (l *launch) watch(ctx context.Context, cmd *cobra.Command) error {
	v, err := vms.Find(ctx, l.node, l.container)
	if err != nil {
		return err
	}
	err = vms.Connect(ctx, l.node, v, cmd)
	switch {
	case errors.Is(err, console.ErrLeft), ctx.Err() != nil:
		if !l.options.remove {
			fmt.Fprintf(l.errOut, "VM %s continues to run. Next: nodevirt console %s, nodevirt rm %s\n", v.Name(), v.Name(), v.Name())
		}
		return nil
	case err != nil:
		return err
	}
	return vms.Ending(ctx, l.node, v, l.errOut)
}

const (
	// shutDownTime is how long a guest may take to shut down before nodevirt powers it
	// off.
	shutDownTime = 10 * time.Second
	undoTime     = time.Minute
)

// removeAtEnd removes the VM, even if the user has pressed ctrl-C.
func (l *launch) removeAtEnd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	done := cli.Spin(l.errOut, "remove the VM")
	err := vms.Remove(ctx, l.node, l.sandbox, l.container, shutDownTime)
	done()
	if err != nil {
		return fmt.Errorf("remove the VM: %w", err)
	}
	fmt.Fprintln(l.errOut, "The VM is removed.")
	return nil
}
