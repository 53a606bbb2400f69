package domain

import (
	"context"
	"errors"
	"os/exec"
	"testing"
)

func TestAwaitEnd(t *testing.T) {
	qemu := exec.CommandContext(t.Context(), "sh", "-c", "read x", "-name", "guest=vm,debug-threads=on")
	stdin, err := qemu.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := qemu.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close(); _ = qemu.Wait() })
	p, pid := &Processes{runDir: t.TempDir()}, qemu.Process.Pid

	given, giveUp := context.WithCancel(t.Context())
	waits := make(chan error, 2)
	go func() { waits <- p.AwaitEnd(given, "vm", pid) }()
	giveUp()
	if err := <-waits; !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	if err := p.AwaitEnd(t.Context(), "other", pid); err != nil {
		t.Errorf("another one's process: %v", err)
	}

	go func() { waits <- p.AwaitEnd(t.Context(), "vm", pid) }()
	select {
	case err := <-waits:
		t.Fatalf("it runs, and ended: %v", err)
	default:
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waits; err != nil { // though no caller waited for the process yet
		t.Error(err)
	}
	_ = qemu.Wait()
	if err := p.AwaitEnd(t.Context(), "vm", pid); err != nil {
		t.Errorf("of a process that is gone: %v", err)
	}
}
