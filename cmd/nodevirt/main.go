// Command nodevirt manages the VMs of a node; see `nodevirt help`.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/nodevirt/nodevirt/cmd/internal/program"
	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/root"
)

// version is set at link time; without that it is the module's, from build info.
var version string

func main() {
	code, message := cli.Ending(run(context.Background()))
	if message != "" {
		fmt.Fprintln(os.Stderr, "nodevirt:", message)
	}
	os.Exit(code)
}

func run(ctx context.Context) error {
	// A second signal ends the program at once.
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	return root.Command(program.Version(version)).ExecuteContext(ctx)
}
