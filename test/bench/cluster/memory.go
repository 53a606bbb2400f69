package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// memory weighs the controller's replicas, and what a VMI's pod asks for beyond its guest's RAM.
func (r *rig) memory(ctx context.Context) (report.Section, error) {
	section := report.Section{Title: "Memory"}
	var weights []float64
	for _, n := range r.Nodes() {
		more, err := controllers(n.Name())
		if err != nil {
			return section, err
		}
		weights = append(weights, more...)
	}
	if len(weights) == 0 {
		return section, errors.New("find the controllers: none runs")
	}
	var all float64
	for _, w := range weights {
		all += w
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
		{Name: "controller, each replica, PSS", Unit: "MiB", Kind: report.Value, Measured: report.Series{Samples: weights}},
		{Name: "controller, all replicas, PSS", Unit: "MiB", Kind: report.Value, Goal: 60, Measured: report.Series{Samples: []float64{all}}},
		{Name: "asked for beyond the guest's", Unit: "MiB", Kind: report.Value, Goal: 96,
			Measured: report.Series{Samples: []float64{float64(overhead.Value()) / (1 << 20)}}},
	}
	return section, nil
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
		text, err := os.ReadFile("/proc/" + e.Name() + "/smaps_rollup")
		if err != nil {
			continue // it has ended
		}
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Pss:" {
				kib, err := strconv.ParseFloat(fields[1], 64)
				if err != nil {
					return nil, fmt.Errorf("weigh process %s: %w", e.Name(), err)
				}
				weights = append(weights, kib/1024)
			}
		}
	}
	return weights, nil
}
