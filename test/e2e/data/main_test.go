//go:build data

package data

import (
	"context"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/guest"
)

var (
	sequences = flag.Int("sequences", 200, "how many sequences of steps to run")
	steps     = flag.Int("steps", 8, "how many steps a sequence has")
	seed      = flag.Int64("seed", 1, "the seed of the first sequence; each next one adds 1")
	limit     = flag.Duration("time", time.Hour, "begin no sequence after this time")
	cdi       = flag.Bool("cdi", false, "CDI fills the DataVolumes")
)

// suite is what the sequences share. It is set before the first begins.
var suite struct {
	*cluster.Cluster
	image string // a guest with an agent
}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(cluster.Main(m, cluster.Options{Storage: true}, prepare))
}

func prepare(ctx context.Context, c *cluster.Cluster) (err error) {
	suite.Cluster = c
	if suite.image, err = clustertest.PushDisk(ctx, c, "tiny-agent:1", guest.TinyWithAgent); err != nil {
		return err
	}
	if err := c.Deploy(ctx); err != nil {
		return err
	}
	if *cdi {
		return c.StartCDI(ctx)
	}
	return nil
}
