// Command bench-cluster measures VMs in a new cluster; see `bench-cluster -help`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nodevirt/nodevirt/test/bench/cluster"
	"github.com/nodevirt/nodevirt/test/bench/control"
	"github.com/nodevirt/nodevirt/test/commands"
)

func main() {
	os.Exit(commands.Interruptible("bench-cluster", func(ctx context.Context) error { return run(ctx, os.Args[1:]) }))
}

func run(ctx context.Context, args []string) error {
	ctrl.SetLogger(logr.Discard()) // of the API's clients
	o := cluster.Default()
	o.Log = os.Stdout
	flags := flag.NewFlagSet("bench-cluster", flag.ContinueOnError)
	out := flags.String("out", "", "`folder` for bench.json with all samples (default: none)")
	bursts := flags.String("bursts", "10,20", "`numbers` of VMs at once, in turn")
	only := flags.String("only", "", "`names` of the parts to measure, without the controller alone (default: all of "+strings.Join(cluster.Names(), ",")+")")
	alone := flags.Bool("controller", true, "measure the controller alone, too, with many VMs that are not scheduled")
	flags.IntVar(&o.Rounds, "rounds", o.Rounds, "`number` of rounds, of one VM at a time")
	flags.IntVar(&o.Replicas, "replicas", o.Replicas, "`number` of VMs that a replica set is scaled to")
	flags.IntVar(&o.Drained, "drained", o.Drained, "`number` of VMs that migrate off a node at once")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return errors.New("see -help")
	}
	if *only != "" {
		o.Only, *alone = strings.Split(*only, ","), false
	}
	o.Bursts = nil
	for n := range strings.SplitSeq(*bursts, ",") {
		size, err := strconv.Atoi(n)
		if err != nil {
			return fmt.Errorf("-bursts: %w", err)
		}
		o.Bursts = append(o.Bursts, size)
	}
	r, err := cluster.Run(ctx, o)
	if err != nil {
		return err
	}
	if *alone {
		c := control.Default()
		c.Log = o.Log
		sections, err := control.Run(ctx, c)
		if err != nil {
			return err
		}
		r.Sections = append(r.Sections, sections...)
		r.Seconds = time.Since(r.Began).Seconds()
	}
	return r.Publish(os.Stdout, *out)
}
