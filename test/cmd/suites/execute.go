package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// execute runs a suite's command in the checkout, with this program's output.
func (b *board) execute(ctx context.Context, s suite, out io.Writer) error {
	fmt.Fprintf(out, "\nSuite %s: %s\n", s.name, strings.Join(s.command, " "))
	cmd := exec.CommandContext(ctx, s.command[0], s.command[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.root, out, os.Stderr
	// On a signal tests have the time to clean up.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("suite %s: %s: %w", s.name, strings.Join(s.command, " "), err)
	}
	return nil
}

// runNamed runs suites, and records each that passes. The record names the commit, so the checkout must
// have no other changes than those of the record itself.
func (b *board) runNamed(ctx context.Context, names []string, out io.Writer, now func() time.Time) error {
	changed, err := git(ctx, b.root, "status", "--porcelain", "--", ".", ":!"+passFile, ":!"+pageFile)
	if err != nil {
		return err
	}
	if changed != "" {
		return fmt.Errorf("the checkout has changes, so a pass would be that of no commit; commit them:\n%s", changed)
	}
	commit, err := git(ctx, b.root, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	var failed error
	for _, name := range names {
		s := b.find(name)
		if s == nil {
			return errors.Join(failed, fmt.Errorf("no suite is named %s; %s has their names", name, tableFile))
		}
		begin := now()
		if err := b.execute(ctx, *s, out); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		end := now()
		minutes := int(end.Sub(begin).Round(time.Minute).Minutes())
		if err := b.record(name, pass{date: end.UTC().Format(time.DateOnly), commit: commit, minutes: minutes}); err != nil {
			return errors.Join(failed, err)
		}
	}
	return failed
}

// runDue runs the due suites that fit in the minutes. A suite that fails keeps no other from running.
func (b *board) runDue(ctx context.Context, minutes int, out io.Writer) error {
	all, err := b.states(ctx)
	if err != nil {
		return err
	}
	run := fitting(all, minutes)
	fmt.Fprintf(out, "\n%d of the slow suites fit in %d minutes and are due; bin/suites due lists all that are.\n", len(run), minutes)
	var failed error
	for _, s := range run {
		fmt.Fprintf(out, "%s %s\n", s.name, s)
	}
	for _, s := range run {
		failed = errors.Join(failed, b.execute(ctx, s.suite, out))
	}
	return failed
}
