package cluster

import (
	"context"
	_ "embed"

	"github.com/nodevirt/nodevirt/test/images"
)

//go:embed manifests/metrics-server.yaml
var metricsManifests string

// StartMetrics has metrics-server run in the cluster, until StopMetrics, and waits until it serves. Few need it:
// `test/tools/build metrics_server` makes its program.
func (c *Cluster) StartMetrics(ctx context.Context) error {
	img, err := images.FromProgram(c.o.bin("metrics-server"), "")
	if err != nil {
		return err
	}
	if _, err := c.Push(ctx, "metrics-server:dev", img); err != nil {
		return err
	}
	if err := c.Apply(ctx, metricsManifests); err != nil {
		return err
	}
	return c.WaitFor(ctx, "apiservice/v1beta1.metrics.k8s.io", "condition=Available")
}

// StopMetrics takes it away, and waits until it has gone. It may not be there.
func (c *Cluster) StopMetrics(ctx context.Context) error {
	if _, err := c.kubectl(ctx, metricsManifests, "delete", "--ignore-not-found", "--cascade=foreground", "-f", "-"); err != nil {
		return err
	}
	_, err := c.Kubectl(ctx, "wait", "pods", "--namespace=kube-system", "--selector=k8s-app=metrics-server", "--for=delete")
	return err
}
