package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/node/demo"
)

// dir is the state folder.
func dir() string {
	if dir := os.Getenv("NODEVIRT_DEV_DIR"); dir != "" {
		return dir
	}
	return "/var/lib/nodevirt-dev"
}

func up(ctx context.Context, _ []string) error {
	_, err := node.Start(ctx, node.Options{Dir: dir(), Log: os.Stdout})
	return err
}

func run(ctx context.Context, _ []string) error {
	return demo.Run(ctx, node.Options{Dir: dir()}, os.Stdout)
}

func down(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("down", flag.ContinueOnError)
	purge := flags.Bool("purge", false, "remove the state folder too")
	if err := flags.Parse(args); err != nil {
		return err
	}
	n, err := node.Attach(dir())
	if err == nil {
		err = n.Stop(ctx)
	}
	if err != nil && !errors.Is(err, node.ErrDown) {
		return err
	}
	if err == nil {
		fmt.Println("the node is down")
	}
	if *purge {
		return node.Purge(ctx, dir())
	}
	return nil
}

// attach finds the node that is up, or returns an error that says how to start one.
func attach() (*node.Node, error) {
	n, err := node.Attach(dir())
	if errors.Is(err, node.ErrDown) {
		return nil, fmt.Errorf("%w (make run starts one; NODEVIRT_DEV_DIR names another folder)", err)
	}
	return n, err
}

// enter replaces this process by a command in the node, so that it has the terminal.
func enter(_ context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("exec: want a command")
	}
	n, err := attach()
	if err != nil {
		return err
	}
	return n.Exec(args[0], args[1:]...)
}

func shell(context.Context, []string) error {
	n, err := attach()
	if err != nil {
		return err
	}
	fmt.Println("A shell in the node. crictl, ctr and virsh are set to it; exit leaves the node up.")
	return n.Exec("bash", "--norc")
}

func status(ctx context.Context, _ []string) error {
	n, err := attach()
	if err != nil {
		return err
	}
	all, err := n.Components()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "DAEMON\tPROCESS\tSTATE")
	for _, s := range all {
		state := "running"
		if s.Ended {
			state = s.Status
		}
		fmt.Fprintf(w, "%s\t%d\t%s\n", s.Name, s.PID, state)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, args := range [][]string{{"pods"}, {"ps", "-a"}} {
		out, err := n.Output(ctx, "crictl", args...)
		if err != nil {
			return err
		}
		fmt.Printf("\n%s", out)
	}
	return nil
}

func logs(_ context.Context, args []string) error {
	if len(args) != 1 {
		return errors.New("logs: want registry, containerd, libvirtd, tgtd, shim or init")
	}
	n, err := attach()
	if err != nil {
		return err
	}
	fmt.Println(n.LogTail(args[0], 200))
	return nil
}
