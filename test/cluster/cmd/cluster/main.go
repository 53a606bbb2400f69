// Command cluster runs a Kubernetes cluster on one machine; see `cluster help`.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `cluster runs a Kubernetes cluster with nodevirt in namespaces of its own.

  cluster up            start the cluster, or what is missing of it; -nodes 2
  cluster run           start the cluster and a virtual machine in it, step by step; -nodes 2
  cluster down          stop it, and remove all that it kept
  cluster shell         open a shell that is set to it and in its network
  cluster exec CMD...   run a command as in that shell
  cluster logs NAME     show the end of a daemon's log

The state folder is $NODEVIRT_CLUSTER_DIR, or /var/lib/nodevirt-cluster.
`

var commands = map[string]func(ctx context.Context, args []string) error{
	"up":    up,
	"run":   run,
	"down":  down,
	"shell": shell,
	"exec":  enter,
	"logs":  logs,
}

func main() {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := commands[os.Args[1]](ctx, os.Args[2:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "cluster: %v\n", err)
		os.Exit(1)
	}
}
