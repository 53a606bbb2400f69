package deb

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Command is exec.CommandContext in the C locale, with a bound on the wait for the output pipes of
// a killed process's children.
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// Run runs a command to its end and returns its output; an error carries the end of what it wrote
// to stderr.
func Run(cmd *exec.Cmd) ([]byte, error) {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, Failed(cmd, err, errs.Bytes())
	}
	return out.Bytes(), nil
}

// Failed is the error of a command that ended badly, with the tail of its output.
func Failed(cmd *exec.Cmd, err error, output []byte) error {
	const most = 2048
	output = bytes.TrimSpace(output)
	if len(output) > most {
		output = append([]byte("… "), output[len(output)-most:]...)
	}
	return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, output)
}
