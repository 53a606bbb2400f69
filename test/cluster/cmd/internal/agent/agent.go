// Package agent runs the programs that the tests start on the nodes of a cluster, until
// a signal ends them. It leaves their flags to the programs.
package agent

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
)

// Run parses the program's flags and calls run, whose context ends with SIGTERM and SIGINT.
// The program wants all flags that required names, and no arguments. Run returns the
// program's exit code, after it has reported an error.
func Run(name string, required []string, run func(context.Context, *slog.Logger) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	flag.Parse()
	err := check(flag.CommandLine, required)
	if err == nil {
		err = run(ctx, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// check returns what is wrong with parsed flags.
func check(flags *flag.FlagSet, required []string) error {
	for _, name := range required {
		if f := flags.Lookup(name); f == nil || f.Value.String() == "" {
			return fmt.Errorf("want -%s; -help lists the flags", name)
		}
	}
	if flags.NArg() > 0 {
		return errors.New("want no arguments; -help lists the flags")
	}
	return nil
}
