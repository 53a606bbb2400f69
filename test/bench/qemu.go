package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// greetings times QEMU from its start to the greeting on its monitor: what no manager can spare.
func greetings(ctx context.Context, rounds int) (report.Series, error) {
	times := report.Series{Of: "QEMU alone"}
	for range rounds {
		begun := time.Now()
		if err := greet(ctx, func() { times.Add(milliseconds(time.Since(begun))) }); err != nil {
			return times, fmt.Errorf("start QEMU alone: %w", err)
		}
	}
	return times, nil
}

func greet(ctx context.Context, greeted func()) (err error) {
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", "-machine", "q35", "-accel", "tcg", "-m", "80",
		"-nodefaults", "-display", "none", "-S", "-qmp", "stdio")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed, as it should be
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.Contains(line, `"QMP"`) {
		return errors.New("no greeting: " + line)
	}
	greeted()
	return nil
}
