// Package program is what the mains of the daemons share: the version, the command line's form, and
// where the log goes. What a program does is its own package's matter; the user's command line tool,
// with its many commands, has package cli.
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

// Version is the one given at link time, or else the module's from the build info.
func Version(linked string) string {
	if linked != "" {
		return linked
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

// Parse reads a daemon's arguments, of which flags are all; to these it adds -version. With done, the
// user asked for the help or the version and has it on standard output: there is nothing to run.
func Parse(flags *flag.FlagSet, usage, version string, args []string) (done bool, err error) {
	show := flags.Bool("version", false, "print the version and exit")
	flags.SetOutput(io.Discard) // what is wrong is told once, by main
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

// Log writes to standard error, also for Kubernetes' libraries.
func Log(level slog.Level) *slog.Logger {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	klog.SetSlogLogger(log)
	return log
}
