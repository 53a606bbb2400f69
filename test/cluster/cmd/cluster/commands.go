package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/cluster/demo"
	"github.com/nodevirt/nodevirt/test/progress"
)

// maxNodes is what one machine may well run.
const maxNodes = 9

// dir is the state folder.
func dir() string {
	if dir := os.Getenv("NODEVIRT_CLUSTER_DIR"); dir != "" {
		return dir
	}
	return "/var/lib/nodevirt-cluster"
}

func run(ctx context.Context, args []string) error {
	o, err := options("run", args)
	if err != nil {
		return err
	}
	return demo.Run(ctx, o, os.Stdout)
}

func up(ctx context.Context, args []string) error {
	o, err := options("up", args)
	if err != nil {
		return err
	}
	o.Log = progress.New(os.Stdout)
	_, err = cluster.Start(ctx, o)
	return err
}

// options are what a command that starts a cluster takes.
func options(command string, args []string) (cluster.Options, error) {
	o := cluster.Options{Dir: dir(), Storage: true}
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.IntVar(&o.Nodes, "nodes", 2, "how many nodes the cluster has")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 || o.Nodes < 1 || o.Nodes > maxNodes {
		return o, fmt.Errorf("%s: want no arguments but -nodes, from 1 to %d", command, maxNodes)
	}
	return o, nil
}

func down(ctx context.Context, _ []string) error {
	if err := cluster.Remove(ctx, dir()); err != nil {
		return err
	}
	fmt.Println("the cluster is down, and its folder is removed")
	return nil
}

func shell(context.Context, []string) error {
	c, err := attach()
	if err != nil {
		return err
	}
	fmt.Println("A shell in the cluster's network. kubectl is set to it; exit leaves the cluster up.")
	return c.Exec("bash", "--norc")
}

// attach finds the cluster that is up, or returns an error that says how to
// start one.
func attach() (*cluster.Cluster, error) {
	c, err := cluster.Attach(dir())
	if errors.Is(err, cluster.ErrDown) {
		return nil, fmt.Errorf("%w (make cluster starts one; NODEVIRT_CLUSTER_DIR names another folder)", err)
	}
	return c, err
}

// enter replaces this process by a command, so that it has the terminal.
func enter(_ context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("exec: want a command")
	}
	c, err := attach()
	if err != nil {
		return err
	}
	return c.Exec(args[0], args[1:]...)
}

func logs(_ context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("logs: want the name of a daemon, like kube-apiserver, kubelet or shim")
	}
	c, err := attach()
	if err != nil {
		return err
	}
	fmt.Println(c.LogTail(args[0], 200))
	return nil
}
