package cluster

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// spent is where the time of VMs' starts went in the shim so far, in milliseconds.
type spent struct {
	create, start float64 // in its calls for its own containers
	libvirt       float64 // of start: in phases that wait for libvirtd
}

func (s spent) less(before spent) spent {
	return spent{s.create - before.create, s.start - before.start, s.libvirt - before.libvirt}
}

// sums are the shim's metrics of calls and of the phases of a start.
var sums = regexp.MustCompile(`^nodevirt_(?:cri_request|vm_start_phase)_duration_seconds_sum\{(.*)\} (\S+)$`)

// spent reads the shims' metrics.
func (r *rig) spent(ctx context.Context) (s spent, err error) {
	var text strings.Builder
	for _, n := range r.Nodes() {
		one, err := n.Scrape(ctx)
		if err != nil {
			return s, err
		}
		text.WriteString(one)
	}
	for line := range strings.Lines(text.String()) {
		m := sums.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		seconds, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return s, fmt.Errorf("the shim's metrics: %q: %w", line, err)
		}
		switch m[1] {
		case `method="CreateContainer",side="shim"`:
			s.create += seconds * 1000
		case `method="StartContainer",side="shim"`:
			s.start += seconds * 1000
		case `phase="domain"`, `phase="start"`, `phase="resume"`:
			s.libvirt += seconds * 1000
		}
	}
	return s, nil
}

// ownGoal is what is neither kubelet, containerd, libvirt nor guest, in milliseconds.
const ownGoal = 100

// shares splits the starts of VMIs by who took the time.
func shares(lives []life) report.Section {
	const together, libvirt = "together", "libvirt"
	names := []string{
		"controller, API server, scheduler: the pod has a node", "shim: CreateContainer",
		"shim: StartContainer, libvirt aside", "controller: pod Running to VMI Running", together,
		libvirt, "the rest: kubelet, containerd",
	}
	series := map[string]*report.Series{}
	for _, name := range names {
		series[name] = new(report.Series)
	}
	for _, l := range lives {
		total := milliseconds(l.phases[vmiRunning])
		parts := []float64{
			milliseconds(l.phases[podScheduled]), l.spent.create, l.spent.start - l.spent.libvirt,
			// A status may be seen before one that was there earlier.
			max(milliseconds(l.phases[vmiRunning]-l.phases[podRunning]), 0),
		}
		own := 0.0
		for i, part := range parts {
			series[names[i]].Add(part)
			own += part
		}
		series[together].Add(own)
		series[libvirt].Add(l.spent.libvirt)
		series[names[6]].Add(total - own - l.spent.libvirt)
	}
	s := report.Section{Title: "Where the time of a VMI's start goes, until it is Running", Notes: []string{
		"CreateContainer holds containerd's part in it. What the shim adds to RunPodSandbox, which is",
		"containerd's, is in the rest: a millisecond or two.",
	}}
	for _, name := range names {
		row := report.Row{Name: name, Unit: "ms", Kind: report.Value, Measured: *series[name]}
		if name == together {
			row.Goal = ownGoal
		}
		s.Rows = append(s.Rows, row)
	}
	return s
}
