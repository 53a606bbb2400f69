package bench

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// phaseLine is what the shim logs, at debug level, after each phase of a start.
var phaseLine = regexp.MustCompile(`msg="phase of a start".* phase=(\S+) duration=(\S+)`)

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
			return nil, fmt.Errorf("the shim's log has phase %s of %d starts; there were %d", s.Of, len(s.Samples), starts)
		}
		all[i].Samples = s.Samples[len(s.Samples)-starts:]
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("the shim's log %s has no phases", path)
	}
	return all, nil
}

// readPhase reads one phase of the last starts.
func readPhase(path, phase string, starts int) (report.Series, error) {
	all, err := readPhases(path, starts)
	if err != nil {
		return report.Series{}, err
	}
	i := slices.IndexFunc(all, func(s report.Series) bool { return s.Of == phase })
	if i < 0 {
		return report.Series{}, fmt.Errorf("the shim's log %s does not have phase %s", path, phase)
	}
	return all[i], nil
}
