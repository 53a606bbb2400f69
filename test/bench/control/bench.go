package control

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// Options say what to measure.
type Options struct {
	// Checkout is the top of the source tree, with programs in bin/ and the image's in bin/image/.
	Checkout string
	// Instances are numbers of VirtualMachineInstances, each made in a separate namespace, in turn.
	Instances []int
	// Machines is a number of VirtualMachines.
	Machines int
	// Clients create objects at once.
	Clients int
	// Nodes run the pods: KWOK plays them. Without nodes no pod is scheduled.
	Nodes int
	// Rate is how many objects are created a second when not at once.
	Rate int
	Log  io.Writer
}

// Default is what is measured where nothing else is said.
func Default() Options {
	return Options{Checkout: ".", Instances: []int{100, 1000}, Machines: 1000, Clients: 16, Log: io.Discard}
}

// Goals of the controller; memory in MiB. Sixty and a hundred are millions of bytes.
const (
	idleGoal    = 57.2
	fullGoal    = 95.4
	podGoal     = 10.0 // milliseconds: a hundred pods a second
	requestGoal = 7
	writeGoal   = 3
	linearGoal  = 1.25
)

// Run measures instances and VirtualMachines, each with a separate API server and controller.
func Run(ctx context.Context, o Options) ([]report.Section, error) {
	var sections []report.Section
	for _, measure := range []func(context.Context, *rig) (report.Section, error){instances, machines} {
		more, err := o.with(ctx, func(ctx context.Context, r *rig) ([]report.Section, error) {
			s, err := measure(ctx, r)
			return []report.Section{s}, err
		})
		if err != nil {
			return sections, err
		}
		sections = append(sections, more...)
	}
	return sections, nil
}

// with measures in a rig that is new.
func (o Options) with(
	ctx context.Context, measure func(context.Context, *rig) ([]report.Section, error),
) ([]report.Section, error) {
	dir, err := os.MkdirTemp("", "nodevirt-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	inside, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := newRig(inside, o, dir)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	s, err := measure(inside, r)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w\n%s", err, r.logs())
	}
	return s, err
}

// instances measures VirtualMachineInstances, and how what they take grows.
func instances(ctx context.Context, r *rig) (report.Section, error) {
	s := report.Section{
		Title: "The controller, two replicas, with VMIs that are not scheduled",
		Notes: []string{
			"Memory is PSS. Replicas on one node share the program's file; the second row counts it twice.",
			"Made: from the first request to create one until the last has its pod, for each of them.",
		},
	}
	fmt.Fprintln(r.Log, "the controller with nothing to do")
	idle, err := r.weigh(ctx)
	if err != nil {
		return s, err
	}
	s.Rows = append(s.Rows,
		report.One("idle: all replicas", "MiB", idle.pss, idleGoal),
		report.One("idle: all replicas, RSS", "MiB", idle.rss, 0))
	var made []float64
	for _, n := range r.Instances {
		b, err := r.burst(ctx, n, "vmi", func(ns, name string) object { return instance(ns, name) })
		if err != nil {
			return s, err
		}
		memory := 0.0
		if n >= 1000 {
			memory = fullGoal
		}
		s.Rows = append(s.Rows, b.rows("VMI", vmis, memory, podGoal)...)
		made = append(made, b.each())
	}
	if len(made) > 1 {
		s.Rows = append(s.Rows, report.Row{
			Name: fmt.Sprintf("%d VMIs against %d: made, each", r.Instances[len(made)-1], r.Instances[0]),
			Unit: "ms", Kind: report.Ratio, Goal: linearGoal,
			Baseline: report.Series{Samples: made[:1]}, Measured: report.Series{Samples: made[len(made)-1:]},
		})
	}
	return s, nil
}

// machines measures VirtualMachines, whose instances the controller makes.
func machines(ctx context.Context, r *rig) (report.Section, error) {
	s := report.Section{Title: "The controller, two replicas, with VMs that are not scheduled"}
	if r.Machines == 0 {
		return s, nil
	}
	b, err := r.burst(ctx, r.Machines, "vm", func(ns, name string) object { return machine(ns, name) })
	if err != nil {
		return s, err
	}
	s.Rows = b.rows("VM", vms, fullGoal, 0)
	return s, nil
}

// program is the controller's name.
const program = "nodevirt-controller"

// program returns the path of the one that the controller's image has.
func (o Options) program() string {
	return filepath.Join(o.Checkout, "bin", "image", program)
}
