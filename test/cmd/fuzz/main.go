// Program fuzz runs each fuzz target of the tree for a while, one after the other, and prints how many inputs each of
// them took. It fails if a target fails, or takes so few inputs that it finds nothing.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// perMinute is how many inputs a target must take in each minute.
const perMinute = 10_000

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("fuzz", flag.ExitOnError)
	each := flags.Duration("time", 30*time.Second, "how long each target runs")
	only := flags.String("run", "", "a regular expression for the targets' names")
	workers := flags.Int("parallel", runtime.NumCPU(), "the number of processes of a target")
	tags := flags.String("tags", "", "build tags")
	if err := flags.Parse(args); err != nil {
		return err
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	all, err := targets(".")
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(t target) bool { return !pattern.MatchString(t.name) })
	if len(all) == 0 {
		return fmt.Errorf("no fuzz target matches %q", *only)
	}
	// The minimizing of interesting inputs would take most of the time.
	common := []string{"test", "-vet=off", "-tags", *tags, "-run", "^$", "-fuzzminimizetime", "100x", "-fuzztime", each.String(), "-parallel", strconv.Itoa(*workers)}
	var done []result
	for _, t := range all {
		if ctx.Err() != nil {
			break
		}
		fmt.Println(t.dir, t.name)
		r := result{target: t, least: int(perMinute * each.Minutes())}
		var output strings.Builder
		command := exec.CommandContext(ctx, "go", append(slices.Clone(common), "-fuzz", "^"+t.name+"$", "./"+t.dir)...)
		command.Stdout, command.Stderr = io.MultiWriter(os.Stdout, &output), os.Stderr
		r.err = command.Run()
		r.inputs = inputs(output.String())
		done = append(done, r)
	}
	return report(os.Stdout, done)
}

// target is a fuzz target.
type target struct{ dir, name string }

var declared = regexp.MustCompile(`(?m)^func (Fuzz[A-Za-z0-9]+)\(`)

// targets finds the targets below a folder, sorted by folder and name.
func targets(top string) ([]target, error) {
	var all []target
	err := filepath.WalkDir(top, func(path string, e os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range declared.FindAllSubmatch(text, -1) {
			all = append(all, target{filepath.ToSlash(filepath.Dir(path)), string(found[1])})
		}
		return err
	})
	slices.SortFunc(all, func(a, b target) int { return strings.Compare(a.dir+" "+a.name, b.dir+" "+b.name) })
	return all, err
}

// result is what a target did.
type result struct {
	target
	inputs, least int
	err           error
}

func (r result) verdict() string {
	switch {
	case r.err != nil:
		return "failed: " + r.err.Error()
	case r.inputs < r.least:
		return fmt.Sprintf("too slow: fewer than %d inputs", r.least)
	}
	return "ok"
}

var executed = regexp.MustCompile(`execs: (\d+)`)

// inputs returns how many inputs a target took, by the last line about it.
func inputs(output string) int {
	all := executed.FindAllStringSubmatch(output, -1)
	if len(all) == 0 {
		return 0
	}
	n, err := strconv.Atoi(all[len(all)-1][1])
	if err != nil {
		return 0
	}
	return n
}

// report prints a table. It returns an error if any target was not ok.
func report(to io.Writer, all []result) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nPACKAGE\tTARGET\tINPUTS\tRESULT")
	var bad []string
	for _, r := range all {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", r.dir, r.name, r.inputs, r.verdict())
		if r.verdict() != "ok" {
			bad = append(bad, r.name)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(bad) > 0 {
		return fmt.Errorf("not ok: %s", strings.Join(bad, ", "))
	}
	return nil
}
