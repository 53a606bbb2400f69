// Package program contains what the daemons' main packages share: the version, the
// parsing of flags, and the log. It leaves the command line of the user's tool to package cli.
package program

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"

	"k8s.io/klog/v2"
)

// Version returns the version that was set at link time or, if empty, the module's
// from the build info.
func Version(linked string) string {
	if linked != "" {
		return linked
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

// Parse parses a daemon's flags, to which it adds -version. done is true if it has
// printed the help or the version, so that there is nothing to run.
func Parse(flags *flag.FlagSet, usage, version string, args []string) (done bool, err error) {
	show := flags.Bool("version", false, "print the version and exit")
	flags.SetOutput(io.Discard) // main prints the error
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		flags.SetOutput(os.Stdout)
		fmt.Print(usage)
		flags.PrintDefaults()
		return true, nil
	case err != nil:
		return false, fmt.Errorf("%w: see -help", err)
	case flags.NArg() > 0:
		return false, fmt.Errorf("unexpected argument %q: see -help", flags.Arg(0))
	}
	if *show {
		fmt.Println(flags.Name(), version)
	}
	return *show, nil
}

// Log returns a logger to standard error, which Kubernetes' libraries use too.
func Log(level slog.Level) *slog.Logger {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	klog.SetSlogLogger(log)
	return log
}
