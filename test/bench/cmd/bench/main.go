// Command bench measures what the shim costs, on a new node; see `bench -help`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/nodevirt/nodevirt/test/bench"
	"github.com/nodevirt/nodevirt/test/commands"
	"github.com/nodevirt/nodevirt/test/loopfs"
)

func main() { os.Exit(loopfs.Private(interruptible)) }

func interruptible() int {
	return commands.Interruptible("bench", func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

func run(ctx context.Context, args []string) error {
	o := bench.Default()
	o.Log = os.Stdout
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := flags.String("only", "", "comma-separated `names` of benches (default: all)")
	out := flags.String("out", "", "`folder` for bench.json with all samples (default: none)")
	flags.IntVar(&o.Rounds, "rounds", o.Rounds, "`number` of rounds that compare starts")
	flags.IntVar(&o.Calls, "calls", o.Calls, "`number` of calls of each kind that is passed on")
	flags.IntVar(&o.VMs, "vms", o.VMs, "`number` of VMs whose memory is weighed")
	flags.IntVar(&o.Burst, "burst", o.Burst, "`number` of guests that boot at once")
	flags.IntVar(&o.Forks, "forks", o.Forks, "`number` of guests from each checkpoint, after the first")
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), "bench measures what the shim costs, on a new node.\n\n")
		flags.PrintDefaults()
		fmt.Fprint(flags.Output(), "\nBenches:\n")
		for _, b := range bench.Names() {
			fmt.Fprintf(flags.Output(), "  %-12s %s\n", b[0], b[1])
		}
	}
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return fmt.Errorf("see -help")
	}
	if *only != "" {
		o.Only = strings.Split(*only, ",")
	}
	r, err := bench.Run(ctx, o)
	if len(r.Sections) > 0 {
		err = errors.Join(r.Publish(os.Stdout, *out), err)
	}
	return err
}
