package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodevirt/nodevirt/test/bench/memory"
	"github.com/nodevirt/nodevirt/test/bench/report"
)

// settle is how long the controller is left alone before it is weighed.
const settle = 10 * time.Second

// idleGoal is 60 million bytes, in MiB.
const idleGoal = 57.2

// weigh weighs the controller's replicas, in MiB.
func (r *rig) weigh(ctx context.Context) (weights []float64, err error) {
	if err := sleep(ctx, settle); err != nil {
		return nil, err
	}
	for _, n := range r.Nodes() {
		more, err := controllers(n.Name())
		if err != nil {
			return nil, err
		}
		weights = append(weights, more...)
	}
	if len(weights) == 0 {
		return nil, errors.New("find the controllers: none runs")
	}
	return weights, nil
}

// memory weighs the controller's replicas again, and returns what a VMI's pod requests beyond its guest's
// RAM.
func (r *rig) memory(ctx context.Context, idle []float64) (report.Section, error) {
	section := report.Section{Title: "Memory"}
	now, err := r.weigh(ctx)
	if err != nil {
		return section, err
	}
	out, err := r.Kubectl(ctx, "get", "runtimeclass", "vm", "-o", "jsonpath={.overhead.podFixed.memory}")
	if err != nil {
		return section, err
	}
	overhead, err := resource.ParseQuantity(strings.TrimSpace(out))
	if err != nil {
		return section, fmt.Errorf("the RuntimeClass's overhead %q: %w", out, err)
	}
	section.Rows = []report.Row{
		{Name: "controller, each replica, idle, PSS", Unit: "MiB", Kind: report.Value, Measured: report.Series{Samples: idle}},
		report.One("controller, all replicas, idle, PSS", "MiB", sum(idle), idleGoal),
		report.One("controller, all replicas, after all this", "MiB", sum(now), 0),
		report.One("asked for beyond the guest's", "MiB", float64(overhead.Value())/(1<<20), 96),
	}
	return section, nil
}

func sum(all []float64) (s float64) {
	for _, v := range all {
		s += v
	}
	return s
}

// controllers are what the controllers in a node's cgroup weigh, in MiB.
func controllers(cgroup string) ([]float64, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("find the controllers: %w", err)
	}
	var weights []float64
	for _, e := range entries {
		if name, _ := os.ReadFile("/proc/" + e.Name() + "/comm"); strings.TrimSpace(string(name)) != "nodevirt-contro" {
			continue
		}
		if groups, _ := os.ReadFile("/proc/" + e.Name() + "/cgroup"); !strings.Contains(string(groups), "/"+cgroup+"/") {
			continue
		}
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue // no process
		}
		if pss, err := memory.PSS(pid); err == nil { // it may have ended
			weights = append(weights, pss)
		}
	}
	return weights, nil
}
