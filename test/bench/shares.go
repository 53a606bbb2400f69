package bench

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// phaseLine is what the shim logs, at debug level, after each phase of a start.
var phaseLine = regexp.MustCompile(`msg="phase of a start".* phase=(\S+) duration=(\S+)`)

// shares tells where the time of starts went: the shim's phases of StartContainer, what remains
// for CreateContainer, libvirt's calls, and QEMU alone.
func (r *rig) shares(ctx context.Context, ref *reference, whole report.Series) ([]report.Row, error) {
	phases, err := readPhases(filepath.Join(r.Dir(), "log", "shim.log"), len(whole.Samples))
	if err != nil {
		return nil, err
	}
	rest := slices.Clone(whole.Samples)
	for _, p := range phases {
		for i := range rest {
			rest[i] -= p.Samples[i]
		}
	}
	rows := []report.Row{value("of it: CreateContainer, calls", report.Series{Of: "shim", Samples: rest})}
	for _, p := range phases {
		rows = append(rows, value("of it: "+p.Of, p))
	}
	for _, c := range []struct {
		name  string
		times report.Series
	}{{"libvirt alone: define", ref.define}, {"libvirt alone: start paused", ref.create}, {"libvirt alone: resume", ref.resume}} {
		c.times.Of = "libvirt alone"
		c.times.Samples = c.times.Samples[1:] // the round that is not counted
		rows = append(rows, value(c.name, c.times))
	}
	greeting, err := greetings(ctx, len(whole.Samples))
	return append(rows, value("QEMU alone, to its greeting", greeting)), err
}

func value(name string, s report.Series) report.Row {
	return report.Row{Name: name, Unit: "ms", Kind: report.Value, Measured: s}
}

// readPhases reads the last starts' phases from the shim's log, in their order.
func readPhases(path string, starts int) ([]report.Series, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the phases of starts: %w", err)
	}
	defer f.Close()
	var all []report.Series
	for lines := bufio.NewScanner(f); lines.Scan(); {
		m := phaseLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		took, err := time.ParseDuration(m[2])
		if err != nil {
			return nil, fmt.Errorf("read the phases of starts: %w", err)
		}
		i := slices.IndexFunc(all, func(s report.Series) bool { return s.Of == m[1] })
		if i < 0 {
			i = len(all)
			all = append(all, report.Series{Of: m[1]})
		}
		all[i].Add(milliseconds(took))
	}
	for i, s := range all {
		if len(s.Samples) < starts {
			return nil, fmt.Errorf("the shim's log tells phase %s of %d starts; there were %d", s.Of, len(s.Samples), starts)
		}
		all[i].Samples = s.Samples[len(s.Samples)-starts:]
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the shim's log %s tells no phases", path)
	}
	return all, nil
}
