// Command bench-scale measures the controller with many VMs on many nodes; see package control.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nodevirt/nodevirt/test/bench/control"
	"github.com/nodevirt/nodevirt/test/bench/report"
	"github.com/nodevirt/nodevirt/test/commands"
)

func main() { os.Exit(commands.Interruptible("bench-scale", run)) }

func run(ctx context.Context) error {
	ctrl.SetLogger(logr.Discard()) // of the API's clients
	o := control.Options{Checkout: ".", Log: os.Stdout}
	flag.IntVar(&o.Clients, "clients", 16, "`number` of clients that create objects at once")
	flag.IntVar(&o.Nodes, "nodes", 1000, "`number` of nodes")
	flag.IntVar(&o.Rate, "rate", control.Rate, "`number` of objects to create a second, one by one; a busy host needs fewer")
	vms := flag.Int("vms", 10_000, "`number` of VirtualMachineInstances, and of VirtualMachines")
	only := flag.String("only", "", "measure `VMI` or VM (default: both)")
	out := flag.String("out", "", "`folder` for bench.json with all samples (default: none)")
	limit := flag.Duration("limit", 2*time.Hour, "`time` after which to give up")
	flag.Parse()
	if min(o.Nodes, o.Clients, o.Rate, *vms) < 1 || !slices.Contains([]string{"", "VMI", "VM"}, *only) {
		return errors.New("invalid flags: numbers must be positive, -only VMI or VM")
	}
	ctx, cancel := context.WithTimeout(ctx, *limit)
	defer cancel()
	r := report.Report{Began: time.Now(), Machine: report.ThisMachine(ctx)}
	var failed error
	r.Sections, failed = control.Scale(ctx, o, control.Sizes(*vms), *only)
	if len(r.Sections) == 0 {
		return failed
	}
	r.Seconds = time.Since(r.Began).Seconds()
	return errors.Join(failed, r.Publish(os.Stdout, *out))
}
