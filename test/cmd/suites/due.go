package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

// state is what a suite's last pass says about the code of today.
type state struct {
	suite
	pass pass
	// never is set for a suite without a pass on record.
	never bool
	// changed are the files that the suite covers and that have changed since.
	changed []string
	// lost says that this clone has not the commit of the last pass: everything may have changed.
	lost bool
}

// takes returns about how many minutes the suite takes: those of its last pass, if one is on record.
func (s state) takes() int {
	if s.never {
		return s.minutes
	}
	return max(s.pass.minutes, 1)
}

func (s state) due() bool { return s.never || s.lost || len(s.changed) > 0 }

func (s state) String() string {
	switch {
	case s.never:
		return "no pass is on record"
	case s.lost:
		return fmt.Sprintf("passed on %s at %.8s, which is not in this clone", s.pass.date, s.pass.commit)
	case len(s.changed) == 0:
		return "passed on " + s.pass.date + "; nothing that it covers has changed"
	case len(s.changed) == 1:
		return "passed on " + s.pass.date + "; changed since: " + s.changed[0]
	}
	return fmt.Sprintf("passed on %s; changed since: %s and %d more", s.pass.date, s.changed[0], len(s.changed)-1)
}

// states returns the state of each suite, in the table's order.
func (b *board) states(ctx context.Context) (all []state, err error) {
	since := map[string][]string{} // by commit
	for _, s := range b.suites {
		p, ok := b.passed[s.name]
		one := state{suite: s, pass: p, never: !ok}
		if ok {
			if _, err := git(ctx, b.root, "rev-parse", "--verify", "--quiet", p.commit+"^{commit}"); err != nil {
				one.lost = true
			}
		}
		if ok && !one.lost {
			if since[p.commit] == nil {
				text, err := git(ctx, b.root, "diff", "--name-only", "--no-renames", p.commit)
				if err != nil {
					return nil, err
				}
				since[p.commit] = strings.Split(text, "\n")
			}
			one.changed = s.covered(since[p.commit])
		}
		all = append(all, one)
	}
	return all, nil
}

// covered returns the files that the suite covers. A page of the documentation changes no program.
func (s suite) covered(files []string) (covered []string) {
	for _, f := range files {
		if strings.HasSuffix(f, ".md") {
			continue
		}
		if slices.ContainsFunc(s.paths, func(p string) bool { return f == p || strings.HasSuffix(p, "/") && strings.HasPrefix(f, p) }) {
			covered = append(covered, f)
		}
	}
	return covered
}

// fitting returns the due suites that a change runs, those that passed the longest ago first, as long
// as they fit in the minutes. A suite that has never passed, or needs more than .ci/run has, is none.
func fitting(all []state, minutes int) (run []state) {
	byAge := slices.Clone(all)
	slices.SortStableFunc(byAge, func(a, b state) int { return strings.Compare(a.pass.date, b.pass.date) })
	for _, s := range byAge {
		if s.due() && !s.never && s.needs == "-" && s.takes() <= minutes {
			minutes -= s.takes()
			run = append(run, s)
		}
	}
	return run
}

// report prints the state of each suite that is due.
func (b *board) report(ctx context.Context, out io.Writer) error {
	all, err := b.states(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.due() {
			fmt.Fprintf(out, "%-24s %4d min  %s\n", s.name, s.takes(), s)
		}
	}
	return nil
}

// git returns what git prints, without the last newline.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}
