// Command csi-driver serves the tests' CSI driver in a cluster; see package csi.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/nodevirt/nodevirt/test/csi"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "csi-driver:", err)
		os.Exit(1)
	}
}

func run() error {
	o := csi.Options{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	flag.StringVar(&o.Dir, "dir", "", "the folder of volumes, the same for all parts of the driver")
	flag.StringVar(&o.Endpoint, "endpoint", "", "the Unix socket to serve at")
	flag.BoolVar(&o.Controller, "controller", false, "make and attach volumes")
	flag.StringVar(&o.Node, "node", "", "mount volumes on the node of this name")
	flag.StringVar(&o.Registry, "registry", "", "the kubelet's folder of plugins to register in")
	flag.Parse()
	if o.Dir == "" || o.Endpoint == "" || flag.NArg() > 0 {
		return fmt.Errorf("want -dir, -endpoint and no arguments; -help lists the flags")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	return csi.Serve(ctx, o)
}
