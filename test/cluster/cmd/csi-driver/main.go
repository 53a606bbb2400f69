// Command csi-driver serves the tests' CSI driver in a cluster; see package csi.
package main

import (
	"context"
	"flag"
	"log/slog"
	"os"

	"github.com/nodevirt/nodevirt/test/cluster/cmd/internal/agent"
	"github.com/nodevirt/nodevirt/test/csi"
)

func main() {
	var o csi.Options
	flag.StringVar(&o.Dir, "dir", "", "the folder of volumes, the same for all parts of the driver")
	flag.StringVar(&o.Endpoint, "endpoint", "", "the Unix socket to serve at")
	flag.BoolVar(&o.Controller, "controller", false, "make and attach volumes")
	flag.StringVar(&o.Node, "node", "", "mount volumes on the node of this name")
	flag.StringVar(&o.Registry, "registry", "", "the kubelet's folder of plugins to register in")
	os.Exit(agent.Run("csi-driver", []string{"dir", "endpoint"}, func(ctx context.Context, log *slog.Logger) error {
		o.Log = log
		return csi.Serve(ctx, o)
	}))
}
