package vms

import (
	"fmt"
	"io"
	"time"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
)

// PhaseDetail is a part of the VM's start.
type PhaseDetail struct {
	Phase   string `json:"phase"`
	BegunAt string `json:"begunAt"`
	// StartSeconds is how long after the first phase it began, Seconds how long it took.
	StartSeconds float64 `json:"startSeconds"`
	Seconds      float64 `json:"seconds"`
}

func (v VM) timeline() []PhaseDetail {
	all := make([]PhaseDetail, 0, len(v.Info.Timeline))
	for _, p := range v.Info.Timeline {
		all = append(all, PhaseDetail{
			Phase: p.Name, BegunAt: p.Begun.UTC().Format(time.RFC3339Nano),
			StartSeconds: p.Begun.Sub(v.Info.Timeline[0].Begun).Seconds(), Seconds: p.Took.Seconds(),
		})
	}
	return all
}

// showTimeline writes the phases as a table.
func showTimeline(w io.Writer, d Detail) error {
	switch {
	case d.Error != "":
		return fmt.Errorf("show the timeline of VM %s: the shim has no details: %s", d.Name, d.Error)
	case len(d.Timeline) == 0:
		return fmt.Errorf("show the timeline of VM %s: an earlier version of nodevirt-shim started it, which recorded none", d.Name)
	}
	rows := [][]string{{"PHASE", "START", "DURATION"}}
	for _, p := range d.Timeline {
		rows = append(rows, []string{p.Phase, milliseconds(p.StartSeconds), milliseconds(p.Seconds)})
	}
	return cli.Table(w, rows)
}

// milliseconds is a time with their precision.
func milliseconds(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond).String()
}
