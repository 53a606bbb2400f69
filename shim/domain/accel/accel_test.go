package accel

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/test/needs"
)

func emulator(t *testing.T) string {
	t.Helper()
	needs.Parts(t, "QEMU")
	path, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// fakeEmulator is a program that ends or hangs in a way that QEMU can't be
// made to, on a machine of any kind.
func fakeEmulator(t *testing.T, script string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "accel") // open to the probe's user, unlike t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "qemu")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestProbeTCG shows that a guest which runs is seen to run.
func TestProbeTCG(t *testing.T) {
	if err := Probe(t.Context(), TCG, emulator(t)); err != nil {
		t.Fatal(err)
	}
}

// TestProbeARM64 shows that QEMU's translator runs the guest of nodes with arm64, and that a board which
// never runs it does not pass.
func TestProbeARM64(t *testing.T) {
	needs.Parts(t, "QEMU")
	const emulator = "qemu-system-aarch64"
	path, err := exec.LookPath(emulator)
	if err != nil {
		t.Fatal(err)
	}
	g := guestOf("arm64", TCG)
	if err := probe(t.Context(), TCG, path, g); err != nil {
		t.Fatal(err)
	}
	silent := g
	silent.image = append(slices.Clone(g.image[:16]), g.image[20:]...) // without the write
	if err := probe(t.Context(), TCG, path, silent); err == nil || !strings.Contains(err.Error(), "ended before the probe guest did") {
		t.Errorf("a guest without a mark: %v", err)
	}
}

func TestProbeFailures(t *testing.T) {
	tests := map[string]struct{ emulator, want string }{
		"hangs":           {fakeEmulator(t, "exec sleep 60"), "did not end within 1s"},
		"other status":    {fakeEmulator(t, "echo no such thing >&2; exit 84"), "exit status 84: no such thing"},
		"guest not asked": {fakeEmulator(t, "exit 0"), "ended before the probe guest did"},
		"no program":      {"/nonexistent/qemu", "QEMU does not start"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := Probe(t.Context(), KVM, tt.emulator)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestResolve(t *testing.T) {
	works := fakeEmulator(t, "exit 85")
	broken := fakeEmulator(t, "echo Could not access KVM >&2; exit 1")
	tests := map[string]struct {
		setting, emulator string
		want              Accelerator
		text              string // in the reason, or in the error where want is empty
	}{
		"auto, works":       {"auto", works, KVM, "ran under KVM"},
		"auto, broken":      {"auto", broken, TCG, "Could not access KVM"},
		"auto, no emulator": {"auto", "/nonexistent/qemu", "", "QEMU does not start"},
		"kvm, works":        {"kvm", works, KVM, "ran under KVM"},
		"kvm, broken":       {"kvm", broken, "", "Could not access KVM"},
		"tcg is not probed": {"tcg", broken, TCG, "configuration"},
		"unknown":           {"xen", works, "", `accelerator "xen": want auto, kvm or tcg`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, reason, err := Resolve(t.Context(), tt.setting, tt.emulator)
			text := reason
			if err != nil {
				text = err.Error()
			}
			if got != tt.want || (err == nil) != (tt.want != "") || !strings.Contains(text, tt.text) {
				t.Errorf("got %q, %q, %v; want %q, %q", got, reason, err, tt.want, tt.text)
			}
		})
	}
}

// TestResolveHere takes the machine as it is: whatever auto chooses must run a
// guest.
func TestResolveHere(t *testing.T) {
	a, reason, err := Resolve(t.Context(), Auto, emulator(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %s", a, reason)
	if err := Probe(t.Context(), a, emulator(t)); err != nil {
		t.Errorf("auto chose %s: %v", a, err)
	}
}

func TestResolveCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := Resolve(ctx, Auto, emulator(t)); err == nil {
		t.Error("a cancelled probe chose an accelerator")
	}
}
