package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/nodevirt/nodevirt/test/node/registry"
	"github.com/nodevirt/nodevirt/test/node/supervisor"
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

// images is the node's registry.
func images(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return errors.New("registry: want a folder, a TCP address and a socket")
	}
	tcp, err := net.Listen("tcp", args[1])
	if err != nil {
		return fmt.Errorf("serve images: %w", err)
	}
	if err := os.RemoveAll(args[2]); err != nil {
		return fmt.Errorf("serve images: %w", err)
	}
	local, err := net.Listen("unix", args[2])
	if err != nil {
		return fmt.Errorf("serve images: %w", err)
	}
	return registry.Serve(ctx, args[0], tcp, local)
}
