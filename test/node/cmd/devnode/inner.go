package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/nodevirt/nodevirt/test/node/registry"
	"github.com/nodevirt/nodevirt/test/node/supervisor"
	"github.com/nodevirt/nodevirt/test/slowlink"
)

// first is the node's first process.
func first(_ context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("init: want the configuration's path")
	}
	c, err := supervisor.Read(args[0])
	if err != nil {
		return err
	}
	return supervisor.Run(c)
}

// shadow becomes a program that sees separate sysctls.
func shadow(_ context.Context, args []string) error {
	if len(args) < 2 {
		return errors.New("shadow: want a folder and a program")
	}
	return supervisor.Shadow(args[0], args[1:])
}

// images is the node's registry. Its TCP address may be behind a slow link; its socket is not.
func images(ctx context.Context, args []string) error {
	var link slowlink.Link
	flags := flag.NewFlagSet("registry", flag.ContinueOnError)
	flags.DurationVar(&link.RoundTrip, "rtt", 0, "round-trip `time` of the link to the TCP address")
	flags.Int64Var(&link.Rate, "rate", 0, "the link's `bytes` per second in each direction; 0: no limit")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 3 {
		return errors.New("registry: want a folder, a TCP address and a socket")
	}
	dir, address, socket := flags.Arg(0), flags.Arg(1), flags.Arg(2)
	tcp, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve images: %w", err)
	}
	if err := os.RemoveAll(socket); err != nil {
		return fmt.Errorf("serve images: %w", err)
	}
	local, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("serve images: %w", err)
	}
	if link == (slowlink.Link{}) {
		return registry.Serve(ctx, dir, tcp, local)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return registry.Serve(ctx, dir, local) })
	group.Go(func() error {
		return link.Serve(ctx, tcp, func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		})
	})
	return group.Wait()
}
