package bench

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/nodevirt/nodevirt/test/bench/report"
	"github.com/nodevirt/nodevirt/test/images"
)

// diskload is the program in a guest that reads and writes its disk.
//
//go:embed programs/diskload/main.go
var diskload []byte

// The part of a guest's disk that is read and written, in bytes: what largeGuest puts behind the
// partition that it boots from.
const (
	loadBegin = 64 << 20
	loadSize  = 256 << 20
)

// loadMemory is that of a guest that has large requests under way, in bytes.
const loadMemory = 160 << 20

// loadTime is how long requests are made in one turn.
const loadTime = 250 * time.Millisecond

// load is how a guest uses its disk. Size is a request's, in bytes; depth is how many are under way.
type load struct {
	write, random bool
	size, depth   int
}

// loads are large requests in sequence, and small ones at random places. Reads come first: writes
// change what is read.
func loads() (all []load) {
	for _, write := range []bool{false, true} {
		for _, random := range []bool{false, true} {
			for _, depth := range []int{1, 16} {
				l := load{write: write, random: random, size: 1 << 20, depth: depth}
				if random {
					l.size = 4 << 10
				}
				all = append(all, l)
			}
		}
	}
	return all
}

func (l load) String() string {
	order, size, does := "sequential", "1 MiB", "read"
	if l.random {
		order, size = "random", "4 KiB"
	}
	if l.write {
		does = "write"
	}
	return fmt.Sprintf("%s %s, %s, depth %d", order, does, size, l.depth)
}

// row compares the throughput of guests. Few small requests a second say more than few bytes.
func (l load) row(baseline, measured report.Series, goal float64) report.Row {
	unit := "MiB/s"
	if l.random {
		unit = "/s"
	}
	return report.Row{
		Name: l.String(), Unit: unit, Kind: report.Turns, Goal: goal, AtLeast: true, Baseline: baseline, Measured: measured,
	}
}

// loaded is a guest whose disk is used.
type loaded struct {
	of, ip string
	r      *rig
}

// loadedGuest waits for a guest, and gives it the program.
func (r *rig) loadedGuest(ctx context.Context, of, ip string) (*loaded, error) {
	if err := r.awaitPage(ctx, ip); err != nil {
		return nil, err
	}
	program, err := images.Program(ctx, r.GuestOptions(), "diskload", diskload)
	if err != nil {
		return nil, err
	}
	binary, err := os.ReadFile(program.From)
	if err != nil {
		return nil, err
	}
	if _, err := r.Fetch(ctx, http.MethodPost, "http://"+ip+"/cgi-bin/program", string(binary)); err != nil {
		return nil, fmt.Errorf("give the guest %s a program: %w", of, err)
	}
	return &loaded{of, ip, r}, nil
}

// gauge measures a load: in MiB/s if it is in sequence, else in requests a second.
func (g *loaded) gauge(l load) gauge {
	seed := uint64(0)
	return gauge{g.of, func(ctx context.Context) (float64, error) {
		seed++
		job, err := json.Marshal(map[string]any{
			"Device": "/dev/vda", "Write": l.write, "Random": l.random, "Size": l.size, "Depth": l.depth,
			"Begin": loadBegin, "End": loadBegin + loadSize, "Seed": seed, "Nanoseconds": loadTime,
		})
		if err != nil {
			return 0, err
		}
		text, err := g.r.Fetch(ctx, http.MethodPost, "http://"+g.ip+"/cgi-bin/run", string(job))
		if err != nil {
			return 0, fmt.Errorf("%s in the guest %s: %w", l, g.of, err)
		}
		var done struct{ Requests, Nanoseconds float64 }
		if err := json.Unmarshal([]byte(text), &done); err != nil {
			return 0, fmt.Errorf("%s in the guest %s: %w: %s", l, g.of, err, text)
		}
		perSecond := done.Requests / done.Nanoseconds * 1e9
		if l.random {
			return perSecond, nil
		}
		return perSecond * float64(l.size) / (1 << 20), nil
	}}
}

// loadRows are for the samples of compareLoads.
func loadRows(baseline, measured string, goal float64) (rows []report.Row) {
	for _, l := range loads() {
		rows = append(rows, l.row(report.Series{Of: baseline}, report.Series{Of: measured}, goal))
	}
	return rows
}

// compareLoads has guests take turns at each load, and adds what they do to its row.
func (r *rig) compareLoads(ctx context.Context, rows []report.Row, baseline, measured *loaded) error {
	for i, l := range loads() {
		series, err := gaugeTurns(ctx, max(5, r.Rounds/2), baseline.gauge(l), measured.gauge(l))
		if err != nil {
			return err
		}
		rows[i].Baseline.Samples = append(rows[i].Baseline.Samples, series[0].Samples...)
		rows[i].Measured.Samples = append(rows[i].Measured.Samples, series[1].Samples...)
	}
	return nil
}
