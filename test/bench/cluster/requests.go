package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// requests counts who asked what of the API server while n VMIs were started, from the audit log.
func (r *rig) requests(ctx context.Context, n int) (report.Section, error) {
	section := report.Section{Title: "Requests to the API server for a VMI, from its creation to Running"}
	fmt.Fprintf(r.log, "requests of %d VMIs\n", n)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	before, err := r.audited()
	if err != nil {
		return section, err
	}
	for i := range n {
		name := fmt.Sprintf("asked-%d", i)
		if _, err := r.create(ctx, vmi, name); err != nil {
			return section, err
		}
		if _, err := r.seen.wait(ctx, name, vmiRunning); err != nil {
			return section, err
		}
		// What belongs to the start comes within this.
		if err := sleep(ctx, 2*time.Second); err != nil {
			return section, err
		}
	}
	after, err := r.audited()
	if err != nil {
		return section, err
	}
	for _, row := range []struct {
		name string
		goal float64
	}{{"controller: all", 7}, {"controller: to the VMI", 3}, {"controller: events", 0}, {"shim", 0}, {"kubelet", 0}, {"scheduler", 0}} {
		section.Rows = append(section.Rows, report.Row{
			Name: row.name, Unit: "", Kind: report.Value, Goal: row.goal,
			Measured: report.Series{Of: row.name, Samples: []float64{float64(after[row.name]-before[row.name]) / float64(n)}},
		})
	}
	section.Notes = []string{"Watches and leases left out, and whatever is not in the VMI's namespace."}
	for i := range n {
		name := fmt.Sprintf("asked-%d", i)
		if _, err := r.remove(ctx, vmi, name); err != nil {
			return section, err
		}
		if _, err := r.seen.wait(ctx, name, vmiGone); err != nil {
			return section, err
		}
	}
	return section, nil
}

// audited counts the requests of the bench's namespace so far, by who asked for what.
func (r *rig) audited() (map[string]int, error) {
	f, err := os.Open(r.AuditLog())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	defer f.Close()
	counts := map[string]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e request
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // the last line may be on its way
		}
		for _, kind := range e.kinds() {
			counts[kind]++
		}
	}
	return counts, lines.Err()
}

// request is the part of an audit event that names the user and the request.
type request struct {
	Stage, Verb, UserAgent string
	ObjectRef              struct{ Resource, Namespace string }
}

func (e request) kinds() []string {
	if e.Stage != "ResponseComplete" || e.Verb == "watch" || e.ObjectRef.Namespace != namespace {
		return nil
	}
	program, _, _ := strings.Cut(e.UserAgent, "/")
	switch program {
	case "nodevirt-controller":
		kinds := []string{"controller: all"}
		if e.ObjectRef.Resource == "virtualmachineinstances" && e.Verb != "get" && e.Verb != "list" {
			kinds = append(kinds, "controller: to the VMI")
		}
		if e.ObjectRef.Resource == "events" {
			kinds = append(kinds, "controller: events")
		}
		return kinds
	case "nodevirt-shim":
		return []string{"shim"}
	case "kubelet":
		return []string{"kubelet"}
	case "kube-scheduler":
		return []string{"scheduler"}
	}
	return nil
}
