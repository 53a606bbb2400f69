// Command suites runs the suites that are too slow for each change, and keeps on record when each last
// passed: see docs/suites.md.
//
//	suites due              names the suites whose code has changed since they passed
//	suites run NAME...      runs suites, and records those that pass
//	suites change MINUTES   runs due suites that together fit in so many minutes; it records nothing
//
// suites.tsv is the table of all suites, passed.tsv the record. Both are tracked. It owns which suites a
// change needs; it leaves running them to make.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "suites:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	root, err := git(ctx, ".", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	b, err := open(root)
	if err != nil {
		return err
	}
	switch {
	case len(args) == 1 && args[0] == "due":
		return b.report(ctx, out)
	case len(args) > 1 && args[0] == "run":
		return b.runNamed(ctx, args[1:], out, time.Now)
	case len(args) == 2 && args[0] == "change":
		minutes, err := strconv.Atoi(args[1])
		if err != nil {
			return fmt.Errorf("read the minutes: %w", err)
		}
		return b.runDue(ctx, minutes, out)
	}
	return fmt.Errorf("want due, run NAME... or change MINUTES, not %q", args)
}
