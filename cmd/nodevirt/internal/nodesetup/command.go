package nodesetup

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/nodesetup/host"
)

// Command returns the command nodevirt node.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Make this Kubernetes node run VMs, or restore it",
	}
	cmd.AddCommand(installCommand(), uninstallCommand())
	return cmd
}

func installCommand() *cobra.Command {
	var (
		wait   time.Duration
		dryRun bool
	)
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Make this Kubernetes node run VMs",
		Long: `Checks this node, prints what it will change, and changes it: libvirt's settings, the
shim's config and unit, the kubelet's CRI socket, and the node's label ` + Label + `.
It supports nodes of kubeadm, k3s and k0s. Running pods keep running.

If the node is not ready afterwards, or a container stopped, the command restores the
node. It saves the original files first, so "nodevirt node uninstall" restores a node
even if the command was killed. On an installed node it changes nothing.`,
		Example: "  sudo nodevirt node install --dry-run\n  sudo nodevirt node install",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, wait, func(s *Setup) error { return s.Install(cmd.Context(), dryRun) })
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only print the changes")
	waitFlag(cmd, &wait)
	return cmd
}

func uninstallCommand() *cobra.Command {
	var (
		wait  time.Duration
		force bool
	)
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Restore this node as it was before nodevirt node install",
		Long: `Restores the files that "nodevirt node install" changed, byte for byte, and the node's
label, and restarts the kubelet and libvirtd. Running pods keep running.

The command refuses while VMs run, or if a file has changed since the installation.
It can run again after it was killed.`,
		Example: "  kubectl drain NODE --ignore-daemonsets\n  sudo nodevirt node uninstall",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd, wait, func(s *Setup) error { return s.Uninstall(cmd.Context(), force) })
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "end running VMs, and discard later changes of the files")
	waitFlag(cmd, &wait)
	return cmd
}

func waitFlag(cmd *cobra.Command, wait *time.Duration) {
	cmd.Flags().DurationVar(wait, "timeout", 5*time.Minute, "how long to wait until the node is ready")
}

// with calls do with this node.
func with(cmd *cobra.Command, wait time.Duration, do func(*Setup) error) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%s: not root; use sudo", cmd.CommandPath())
	}
	root, err := os.OpenRoot("/")
	if err != nil {
		return err
	}
	defer root.Close()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the folder of nodevirt-shim: %w", err)
	}
	return do(&Setup{
		Root: root, Node: host.Host{Progress: cmd.ErrOrStderr()}, Out: cmd.OutOrStdout(),
		Programs: filepath.Dir(self), Wait: wait, Poll: time.Second,
	})
}
