package cluster

import (
	"context"
	"os/exec"
)

// VirtctlCommand is [Cluster.KubectlCommand] for KubeVirt's virtctl.
func (c *Cluster) VirtctlCommand(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{"--kubeconfig", c.o.path("pki", "admin.kubeconfig")}, args...)
	return c.control.Command(ctx, c.o.bin("virtctl"), args...)
}
