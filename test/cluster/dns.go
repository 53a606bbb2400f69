package cluster

import (
	"context"
	_ "embed"

	"github.com/nodevirt/nodevirt/test/images"
)

//go:embed manifests/coredns.yaml
var dnsManifests string

// pushDNS provides CoreDNS' image.
func (c *Cluster) pushDNS(ctx context.Context) error {
	img, err := images.FromProgram(c.o.bin("coredns"), "")
	if err != nil {
		return err
	}
	_, err = c.Push(ctx, "coredns:dev", img)
	return err
}

// startDNS has CoreDNS run in the cluster as kubeadm's clusters have it.
func (c *Cluster) startDNS(ctx context.Context) error {
	if err := c.Apply(ctx, dnsManifests); err != nil {
		return err
	}
	return c.WaitFor(ctx, "deployment/coredns", "condition=Available", "--namespace=kube-system")
}
