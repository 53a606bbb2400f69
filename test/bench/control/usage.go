package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/nodevirt/nodevirt/test/bench/memory"
)

// cpu returns the seconds of CPU time that the control plane's programs have used, by their names.
// The controller's is of all replicas that run.
func (r *rig) cpu() (map[string]float64, error) {
	seconds := map[string]float64{}
	add := func(name string, pid int) error {
		p, err := procfs.NewProc(pid)
		if err != nil {
			return fmt.Errorf("read the CPU time of %s: %w", name, err)
		}
		stat, err := p.Stat()
		if err != nil {
			return fmt.Errorf("read the CPU time of %s: %w", name, err)
		}
		seconds[name] += stat.CPUTime()
		return nil
	}
	for name, d := range r.server.Daemons() {
		if err := add(name, d.PID()); err != nil {
			return nil, err
		}
	}
	for name, d := range r.daemons {
		if err := add(name, d.PID()); err != nil {
			return nil, err
		}
	}
	for _, p := range r.replicas {
		if p.Ended() {
			continue
		}
		if err := add(program, p.PID()); err != nil {
			return nil, err
		}
	}
	return seconds, nil
}

// footprint is a replica's resident memory in MiB: at rest, and the most that it was so far.
type footprint struct{ rss, peak float64 }

// footprint reads the leader's, after a rest.
func (r *rig) footprint(ctx context.Context) (f footprint, err error) {
	if err := sleep(ctx, settle); err != nil {
		return f, err
	}
	p, err := r.leader(ctx)
	if err != nil {
		return f, err
	}
	if f.rss, err = memory.Mebibytes(p.PID(), "status", "VmRSS"); err != nil {
		return f, err
	}
	f.peak, err = memory.Mebibytes(p.PID(), "status", "VmHWM")
	return f, err
}

// leader returns the replica that leads.
func (r *rig) leader(ctx context.Context) (*replica, error) {
	var all error
	for _, p := range r.replicas {
		if p.Ended() {
			continue
		}
		leads, err := p.leads(ctx)
		if leads {
			return p, nil
		}
		all = errors.Join(all, err)
	}
	return nil, errors.Join(errors.New("no replica leads"), all)
}

// leads asks a replica's metrics whether it leads.
func (p *replica) leads(ctx context.Context) (bool, error) {
	metrics, err := p.read(ctx)
	if err != nil {
		return false, err
	}
	defer metrics.Close()
	return leads(metrics)
}

// read returns a replica's metrics, which the caller closes.
func (p *replica) read(ctx context.Context) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.metrics+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("read a replica's metrics: %w", err)
	}
	return response.Body, nil
}

// leads looks for the metric in Prometheus' text format.
func leads(metrics io.Reader) (bool, error) {
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), "} "); ok && strings.HasPrefix(name, "leader_election_master_status{") {
			return value == "1", nil
		}
	}
	return false, errors.Join(errors.New("no metric leader_election_master_status"), lines.Err())
}

// pause is the time between two looks at the controller's queues, and calm how many in a row must find them empty.
const (
	pause = 200 * time.Millisecond
	calm  = 3
)

// rest waits until the leader has nothing to do, and returns how long after a time that was.
func (r *rig) rest(ctx context.Context, since time.Time) (time.Duration, error) {
	last := time.Now()
	for quiet := 0; quiet < calm; {
		p, err := r.leader(ctx)
		if err != nil {
			return 0, err
		}
		metrics, err := p.read(ctx)
		if err != nil {
			return 0, err
		}
		n, err := queued(metrics)
		metrics.Close()
		if err != nil {
			return 0, err
		}
		if quiet++; n > 0 {
			quiet, last = 0, time.Now()
		}
		if err := sleep(ctx, pause); err != nil {
			return 0, err
		}
	}
	return last.Sub(since), nil
}

// queued returns how many requests wait in the queues of reconcilers, or are being reconciled.
func queued(metrics io.Reader) (float64, error) {
	n := 0.0
	lines := bufio.NewScanner(metrics)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), "} ")
		if !ok || !strings.HasPrefix(name, "workqueue_depth{") && !strings.HasPrefix(name, "controller_runtime_active_workers{") {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("read the metric %s: %w", name, err)
		}
		n += v
	}
	return n, lines.Err()
}
