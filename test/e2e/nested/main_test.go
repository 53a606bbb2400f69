//go:build nested

package nested

import (
	"context"
	"os"
	"testing"

	"github.com/nodevirt/nodevirt/test/cluster"
)

// suite is the outer cluster. It is set before the test runs.
var suite *cluster.Cluster

func TestMain(m *testing.M) {
	os.Exit(cluster.Main(m, cluster.Options{Nodes: 2, Log: os.Stderr}, prepare))
}

func prepare(ctx context.Context, c *cluster.Cluster) error {
	suite = c
	if err := pushImages(ctx, c); err != nil {
		return err
	}
	if err := pushNode(ctx, c); err != nil {
		return err
	}
	return c.Deploy(ctx)
}
