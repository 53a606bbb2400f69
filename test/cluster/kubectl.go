package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// KubectlCommand is exec.CommandContext for kubectl as the cluster's administrator, in the control plane's
// network: what it forwards is reached by Control().Dial.
func (c *Cluster) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{"--kubeconfig", c.o.path("pki", "admin.kubeconfig"), "--cache-dir", c.o.path("kubectl")}, args...)
	return c.control.Command(ctx, c.o.bin("kubectl"), args...)
}

// Kubectl runs kubectl and returns what it wrote to stdout; an error carries what it wrote to stderr.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.kubectl(ctx, "", args...)
}

// Apply applies manifests, which YAML's --- may separate.
func (c *Cluster) Apply(ctx context.Context, manifests string) error {
	_, err := c.kubectl(ctx, manifests, "apply", "--server-side", "-f", "-")
	return err
}

func (c *Cluster) kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := c.KubectlCommand(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// WaitFor waits until an object, like "node/node-1", exists and meets a condition as `kubectl wait --for`
// takes it, for five minutes at the most. Further arguments are kubectl's own.
func (c *Cluster) WaitFor(ctx context.Context, object, condition string, args ...string) error {
	timeout := fmt.Sprintf("--timeout=%s", startLimit)
	for _, what := range []string{"create", condition} {
		if _, err := c.Kubectl(ctx, append([]string{"wait", object, "--for=" + what, timeout}, args...)...); err != nil {
			return err
		}
	}
	return nil
}
