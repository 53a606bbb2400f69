// Command devnode runs a development node; see `devnode help`.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `devnode runs a development node of nodevirt in namespaces of its own.

  devnode up            start the node, or what is missing of it
  devnode run           start the node and boot a guest in it, step by step
  devnode down          stop the node; with -purge, remove its state folder too
  devnode shell         open a shell in the node
  devnode exec CMD...   run a command in the node
  devnode status        show the node's daemons and pods
  devnode logs NAME     show the end of a daemon's log

The state folder is $NODEVIRT_DEV_DIR, or /var/lib/nodevirt-dev.
`

// commands are what the first argument names. The node itself uses init, registry and shadow.
var commands = map[string]func(ctx context.Context, args []string) error{
	"up":       up,
	"run":      run,
	"down":     down,
	"shell":    shell,
	"exec":     enter,
	"status":   status,
	"logs":     logs,
	"init":     first,
	"registry": images,
	"shadow":   shadow,
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
		fmt.Fprintf(os.Stderr, "devnode: %v\n", err)
		os.Exit(1)
	}
}
