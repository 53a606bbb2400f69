// Command gotest runs go test with its own arguments, and prints what go test would; but whatever
// the tests of a real node write, the last lines name each test that failed, with its assertions.
// They are few enough for those who are shown but the end of a long output. It ends with go test's
// exit code.
//
// With -again=N as its first argument, it runs failed tests a second time, if they are at most N, and
// nothing else failed. If they pass, it names them, and ends with 0. unsteady.tsv lists those for which
// that is known.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	code, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// run returns the exit code of go test with these arguments.
func run(ctx context.Context, args []string, out io.Writer) (code int, err error) {
	most := 0
	if n, asked := strings.CutPrefix(strings.Join(args[:min(len(args), 1)], ""), "-again="); asked {
		if most, err = strconv.Atoi(n); err != nil {
			return 2, err
		}
		args = args[1:]
	}
	r, code, err := once(ctx, args, out)
	of, ok := r.failed(most)
	if err != nil || code == 0 || !ok {
		return code, err
	}
	for _, pkg := range slices.Sorted(maps.Keys(of)) {
		r.print("\nA second try:\n")
		if _, code, err := once(ctx, again(args, pkg, of[pkg]), out); err != nil || code != 0 {
			return code, err
		}
	}
	known, err := readUnsteady(list)
	r.print(late(of, known))
	return 0, err
}

// once runs go test and reports it.
func once(ctx context.Context, args []string, out io.Writer) (*report, int, error) {
	r := newReport(out, slices.Contains(args, "-v"))
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	// On a signal go test has the time to report how far it came.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stderr = os.Stderr
	in, err := cmd.StdoutPipe()
	if err != nil {
		return r, 1, err
	}
	if err := cmd.Start(); err != nil {
		return r, 1, err
	}
	err = read(in, r)
	r.slow()
	r.summary()
	err = errors.Join(err, cmd.Wait())
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return r, max(cmd.ProcessState.ExitCode(), 1), nil // it has reported why
	}
	return r, 0, err
}

// read passes on the events of go test. It passes on lines that are no events, too.
func read(in io.Reader, r *report) error {
	for lines := bufio.NewReader(in); ; {
		line, err := lines.ReadBytes('\n')
		var e event
		switch {
		case len(line) == 0:
		case json.Unmarshal(line, &e) == nil:
			r.add(e)
		default:
			r.print(string(line))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
