// Stargz is the stargz snapshotter as containerd's proxy plug-in runs it. Its own main package is in
// a module without releases, which the module proxy does not have; this one does as much of the same
// as a node needs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	snapshotsapi "github.com/containerd/containerd/api/services/snapshots/v1"
	"github.com/containerd/containerd/v2/contrib/snapshotservice"
	"github.com/containerd/log"
	"github.com/containerd/stargz-snapshotter/service"
	"github.com/pelletier/go-toml"
	"google.golang.org/grpc"
)

func main() {
	address := flag.String("address", "", "the `socket` to serve the snapshotter on")
	config := flag.String("config", "", "the configuration `file`, as containerd-stargz-grpc reads it")
	root := flag.String("root", "", "the `folder` of the snapshots")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *address, *config, *root); err != nil {
		fmt.Fprintln(os.Stderr, "containerd-stargz-grpc:", err)
		os.Exit(1)
	}
}

// run serves until ctx is done, and then unmounts all that it has mounted.
func run(ctx context.Context, address, file, root string) error {
	tree, err := toml.LoadFile(file)
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	var config service.Config
	if err := tree.Unmarshal(&config); err != nil {
		return fmt.Errorf("read configuration %s: %w", file, err)
	}
	if err := service.Supported(root); err != nil {
		return fmt.Errorf("use %s: %w", root, err)
	}
	snapshotter, err := service.NewStargzSnapshotterService(log.WithLogger(context.WithoutCancel(ctx), log.L), root, &config)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	server := grpc.NewServer()
	snapshotsapi.RegisterSnapshotsServer(server, snapshotservice.FromSnapshotter(snapshotter))
	if err := os.RemoveAll(address); err != nil {
		return fmt.Errorf("remove the old socket: %w", err)
	}
	listener, err := net.Listen("unix", address)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	context.AfterFunc(ctx, server.Stop)
	err = server.Serve(listener)
	return errors.Join(err, snapshotter.Close())
}
