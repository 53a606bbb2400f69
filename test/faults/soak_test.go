//go:build faults && soak

package faults

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/node"
)

var minutes = flag.Int("minutes", 10, "duration of TestSoak")

const (
	// agentEach is how often a cycle's guest runs commands; most have no agent, and are up at once.
	agentEach = 20
	// mostGrowth is the part that anything may grow by in the second half, by a line through its samples.
	mostGrowth = 0.05
)

// TestSoak leads VMs through their lives, one after the other, and measures the daemons after each.
func TestSoak(t *testing.T) {
	r := begin(t)
	disk, err := guest.TinyWithAgent(t.Context(), suite.GuestOptions())
	assert.NilError(t, err)
	withAgent, err := pushDisk(t.Context(), "tiny-agent:1", disk)
	assert.NilError(t, err)
	var all []map[string]float64
	for end := time.Now().Add(time.Duration(*minutes) * time.Minute); time.Now().Before(end); {
		if err := r.cycle(t, len(all), withAgent); err != nil {
			t.Fatalf("cycle %d: %v", len(all), err)
		}
		now, err := measured(t.Context())
		assert.NilError(t, err)
		all = append(all, now)
	}
	table, grown := growth(all)
	t.Logf("%d cycles in %d minutes\n%s", len(all), *minutes, table)
	for _, what := range grown {
		t.Errorf("%s grows", what)
	}
}

// cycle is the life of one VM with a client on its console and, of some, a command in the guest.
func (r *round) cycle(t *testing.T, n int, withAgent string) error {
	t.Helper()
	ctx := t.Context()
	image, memory := suite.halt, int64(64<<20)
	if n%agentEach == 0 {
		image, memory = withAgent, 384<<20
	}
	p, err := newPod(fmt.Sprintf("soak-%d", n), image, memory)
	if err != nil {
		return err
	}
	if n%2 == 1 {
		p.overISCSI()
	}
	for _, c := range life[:started] {
		if err := c.do(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	conn, code, err := upgrade(ctx, attachURL(t, &round{pod: p}))
	if err != nil {
		return fmt.Errorf("attach: %d, %w", code, err)
	}
	defer func() { _ = conn.Close() }()
	if n%agentEach == 0 {
		if err := p.runsCommand(ctx); err != nil {
			return err
		}
	}
	for _, c := range life[started:] {
		if err := c.do(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return removeCgroups(ctx, p.config.Linux.CgroupParent, p.container)
}

// series are what is measured, in the order of the table.
var series = []string{
	"shim: RSS, KiB", "shim: descriptors", "shim: goroutines", "shim: threads",
	"libvirtd: RSS, KiB", "libvirtd: descriptors", "libvirtd: threads",
	"tgtd: RSS, KiB", "tgtd: descriptors", "tgtd: threads",
}

// measured is what the daemons take now.
func measured(ctx context.Context) (map[string]float64, error) {
	now := map[string]float64{}
	for name, component := range map[string]string{"shim": node.Shim, "libvirtd": node.Libvirtd, "tgtd": node.Tgtd} {
		pid, err := pidOf(component)
		if err != nil {
			return nil, err
		}
		dir := fmt.Sprintf("/proc/%d/root/proc/%d", suite.PID(), pid)
		files, err := os.ReadDir(filepath.Join(dir, "fd"))
		if err != nil {
			return nil, err
		}
		now[name+": descriptors"] = float64(len(files))
		status, err := os.ReadFile(filepath.Join(dir, "status"))
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(status)) {
			key, value, _ := strings.Cut(line, ":")
			number, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			switch key {
			case "VmRSS":
				now[name+": RSS, KiB"] = number
			case "Threads":
				now[name+": threads"] = number
			}
		}
	}
	goroutines, err := suite.Sample(ctx, "go_goroutines")
	now["shim: goroutines"] = goroutines
	return now, err
}

// growth fits a line through the second half of each series. Two descriptors, goroutines or threads more
// are no growth, whatever their part: Go's runtime keeps threads that it needed once.
func growth(all []map[string]float64) (table string, grown []string) {
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "what\tfirst\tmiddle\tlast\tgrowth by the fit")
	half := all[len(all)/2:]
	for _, what := range series {
		values := make([]float64, len(half))
		for i, s := range half {
			values[i] = s[what]
		}
		from, to := fitted(values)
		part := (to - from) / from
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t%+.1f %%\n", what, all[0][what], half[0][what], half[len(half)-1][what], 100*part)
		if part > mostGrowth && to-from > 2 {
			grown = append(grown, what)
		}
	}
	_ = w.Flush() // to a buffer
	return text.String(), grown
}

// fitted returns the ends of the line through values that is nearest to them, by least squares.
func fitted(values []float64) (from, to float64) {
	n := float64(len(values))
	middle, mean := (n-1)/2, 0.0
	for _, y := range values {
		mean += y / n
	}
	var above, below float64
	for i, y := range values {
		x := float64(i) - middle
		above += x * (y - mean)
		below += x * x
	}
	if below == 0 {
		return mean, mean
	}
	slope := above / below
	return mean - slope*middle, mean + slope*middle
}
