package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nodevirt/nodevirt/test/bench/report"
	"github.com/nodevirt/nodevirt/test/node"
)

// idle is how long the shim's CPU time is watched.
const idle = 20 * time.Second

// patience bounds the boot of all guests.
const patience = 10 * time.Minute

// burst boots guests at once, and then watches the shim while they idle.
func (r *rig) burst(ctx context.Context) (s report.Section, err error) {
	image, _, err := r.tiny(ctx)
	if err != nil {
		return s, err
	}
	started, answered, err := r.bootAll(ctx, image)
	if err != nil {
		return s, err
	}
	last := report.Series{Of: answered.Of, Samples: []float64{answered.Quantile(1)}}
	s = report.Section{
		Title: fmt.Sprintf("%d guests of %d MiB at once, from RunPodSandbox on", r.Burst, guestMemory>>20),
		Rows: []report.Row{
			{Name: "a guest is started", Unit: "s", Kind: report.Value, Measured: started},
			{Name: "a guest answers HTTP", Unit: "s", Kind: report.Value, Measured: answered},
			{Name: "all answer", Unit: "s", Kind: report.Value, Measured: last},
		},
	}
	for _, d := range []struct {
		name string
		goal float64
	}{{node.Shim, 0.5}, {node.Libvirtd, 0}, {node.Containerd, 0}} {
		s.Rows = append(s.Rows, report.Row{
			Name: d.name + " idle, of a core", Unit: "%", Kind: report.Value, Goal: d.goal,
			Measured: report.Series{Of: d.name},
		})
	}
	if err := r.watchIdle(ctx, s.Rows[3:], []string{node.Shim, node.Libvirtd, node.Containerd}); err != nil {
		return s, err
	}
	rss, err := r.shimRSS(r.Burst)
	s.Rows = append(s.Rows, rss...)
	return s, err
}

// bootAll returns for each guest when it was started, and when it answered, in seconds.
func (r *rig) bootAll(ctx context.Context, image string) (started, answered report.Series, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("not all guests are up in time"))
	defer cancel()
	begun := time.Now()
	started = report.Series{Of: "guests", Samples: make([]float64, r.Burst)}
	answered = report.Series{Of: "guests", Samples: make([]float64, r.Burst)}
	g, ctx := errgroup.WithContext(ctx)
	for i := range r.Burst {
		g.Go(func() error {
			p, err := r.runPod(ctx, r.shim, fmt.Sprintf("burst-%d", i), "vm")
			if err != nil {
				return err
			}
			if _, err := p.run(ctx, "guest", image); err != nil {
				return err
			}
			started.Samples[i] = time.Since(begun).Seconds()
			if err := r.awaitAnswer(ctx, p); err != nil {
				return err
			}
			answered.Samples[i] = time.Since(begun).Seconds()
			return nil
		})
	}
	return started, answered, g.Wait()
}

// awaitAnswer waits for the guest of a pod.
func (r *rig) awaitAnswer(ctx context.Context, p *pod) error {
	ip, err := p.ip(ctx)
	if err != nil {
		return err
	}
	if err := r.awaitPage(ctx, ip); err != nil {
		return fmt.Errorf("pod %s: %w", p.config.Metadata.Name, err)
	}
	return nil
}

// awaitPage asks a guest for its page until it comes.
func (r *rig) awaitPage(ctx context.Context, ip string) error {
	for {
		asked, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := r.Fetch(asked, http.MethodGet, "http://"+ip+"/", "")
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the guest at %s: %w; last: %w", ip, context.Cause(ctx), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// watchIdle adds to each row which share of a core a daemon used.
func (r *rig) watchIdle(ctx context.Context, rows []report.Row, daemons []string) error {
	var pids []int
	for _, name := range daemons {
		pid, err := r.daemon(name)
		if err != nil {
			return err
		}
		pids = append(pids, pid)
	}
	used, err := shares(ctx, pids, idle)
	if err != nil {
		return err
	}
	for i := range rows {
		rows[i].Measured.Add(used[i])
	}
	return nil
}
