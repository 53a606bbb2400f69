package cluster

import (
	"context"
	"os/exec"
)

// VirtctlCommand is [Cluster.KubectlCommand] for KubeVirt's virtctl.
func (c *Cluster) VirtctlCommand(ctx context.Context, args ...string) *exec.Cmd {
	// By the environment: the virtctl that ssh runs as its proxy gets no flag.
	cmd := c.control.Command(ctx, c.o.bin("virtctl"), args...)
	cmd.Env = append(cmd.Env, "KUBECONFIG="+c.o.path("pki", "admin.kubeconfig"))
	return cmd
}
