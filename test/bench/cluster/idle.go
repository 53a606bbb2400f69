package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// watched is how long VMIs that run are watched for requests.
const watched = time.Minute

// none is less than one request for all of them.
const none = 0.1

// idle counts what the controller asks for while VMIs run and nothing happens.
func (r *rig) idle(ctx context.Context, n int) (report.Section, error) {
	s := report.Section{Title: fmt.Sprintf("Requests to the API server in a minute in which %d VMIs run", n)}
	fmt.Fprintf(r.log, "a minute of %d VMIs that run\n", n)
	ctx, cancel := context.WithTimeout(ctx, limit+watched)
	defer cancel()
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("quiet-%d", i)
	}
	for _, name := range names {
		if _, err := r.create(ctx, vmi, name); err != nil {
			return s, err
		}
	}
	for _, name := range names {
		if _, err := r.answers(ctx, name); err != nil {
			return s, err
		}
	}
	if err := sleep(ctx, 5*time.Second); err != nil { // what belongs to the starts
		return s, err
	}
	before, err := r.audited()
	if err != nil {
		return s, err
	}
	if err := sleep(ctx, watched); err != nil {
		return s, err
	}
	after, err := r.audited()
	if err != nil {
		return s, err
	}
	for _, who := range []struct {
		name string
		goal float64
	}{{"controller: all", none}, {"shim", none}, {"kubelet", 0}} {
		asked := float64(after[who.name]-before[who.name]) / float64(n)
		s.Rows = append(s.Rows, report.One(who.name+", for each VMI", "", asked, who.goal))
	}
	for _, name := range names {
		if _, err := r.remove(ctx, vmi, name); err != nil {
			return s, err
		}
	}
	for _, name := range names {
		if _, err := r.seen.wait(ctx, name, vmiGone); err != nil {
			return s, err
		}
	}
	return s, nil
}
