//go:build kubevirt

package kubevirt

import (
	"context"
	_ "embed"
	"path/filepath"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
)

//go:embed testdata/prometheus.yaml
var prometheusManifest string

// startPrometheus gives a cluster Prometheus with the project's rules, for the specs of metrics and alerts.
func startPrometheus(ctx context.Context, c *cluster.Cluster) error {
	bin, err := node.CheckoutBin()
	if err != nil {
		return err
	}
	img, err := images.FromProgram(filepath.Join(bin, "prometheus"), "")
	if err != nil {
		return err
	}
	if _, err := c.Push(ctx, "prometheus:dev", img); err != nil {
		return err
	}
	if err := c.Apply(ctx, prometheusManifest); err != nil {
		return err
	}
	rules := filepath.Join(filepath.Dir(bin), "deploy", "monitoring", "nodevirt.rules.yaml")
	if _, err := c.Kubectl(ctx, "--namespace=monitoring", "create", "configmap", "rules", "--from-file="+rules); err != nil {
		return err
	}
	return c.WaitFor(ctx, "pod/prometheus-k8s", "condition=Ready", "--namespace=monitoring")
}
