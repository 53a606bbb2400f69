// Command bench-controller measures the controller; see package control.
package main

import (
	"context"
	"flag"
	"os"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/nodevirt/nodevirt/test/bench/control"
	"github.com/nodevirt/nodevirt/test/bench/report"
	"github.com/nodevirt/nodevirt/test/commands"
)

func main() { os.Exit(commands.Interruptible("bench-controller", run)) }

func run(ctx context.Context) (err error) {
	ctrl.SetLogger(logr.Discard()) // of the API's clients
	o := control.Default()
	o.Log = os.Stdout
	flag.IntVar(&o.Clients, "clients", o.Clients, "`number` of clients that create objects at once")
	flag.IntVar(&o.Machines, "vms", o.Machines, "`number` of VirtualMachines")
	out := flag.String("out", "", "`folder` for bench.json with all samples (default: none)")
	flag.Parse()
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	r := report.Report{Began: time.Now(), Machine: report.ThisMachine(ctx)}
	if r.Sections, err = control.Run(ctx, o); err != nil {
		return err
	}
	r.Seconds = time.Since(r.Began).Seconds()
	return r.Publish(os.Stdout, *out)
}
