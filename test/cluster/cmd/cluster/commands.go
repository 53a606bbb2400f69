package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/cluster/demo"
	"github.com/nodevirt/nodevirt/test/progress"
)

// dir is the state folder.
func dir() string {
	if dir := os.Getenv("NODEVIRT_CLUSTER_DIR"); dir != "" {
		return dir
	}
	return "/var/lib/nodevirt-cluster"
}

func run(ctx context.Context, _ []string) error {
	return demo.Run(ctx, cluster.Options{Dir: dir()}, os.Stdout)
}

func up(ctx context.Context, _ []string) error {
	_, err := cluster.Start(ctx, cluster.Options{Dir: dir(), Log: progress.New(os.Stdout)})
	return err
}

func down(ctx context.Context, _ []string) error {
	if err := cluster.Remove(ctx, dir()); err != nil {
		return err
	}
	fmt.Println("the cluster is down, and its folder is removed")
	return nil
}

func shell(ctx context.Context, _ []string) error {
	fmt.Println("A shell in the cluster's network. kubectl is set to it; exit leaves the cluster up.")
	return enter(ctx, []string{"bash", "--norc"})
}

// enter replaces this process by a command, so that it has the terminal.
func enter(_ context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("exec: want a command")
	}
	c, err := cluster.Attach(dir())
	if err != nil {
		return err
	}
	return c.Exec(args[0], args[1:]...)
}

func logs(_ context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("logs: want the name of a daemon, like kube-apiserver, kubelet or shim")
	}
	c, err := cluster.Attach(dir())
	if err != nil {
		return err
	}
	fmt.Println(c.LogTail(args[0], 200))
	return nil
}
