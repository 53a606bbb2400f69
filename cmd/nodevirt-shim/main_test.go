package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/golden"
)

// TestCommand runs the program as a user does; nothing of it gets so far as to serve.
func TestCommand(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "nodevirt-shim")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-X main.version=v1.2.3", "-o", program, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	file := filepath.Join(dir, "shim.toml")
	if err := os.WriteFile(file, []byte("lisen = '/run/x.sock'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"help":                          {"-help"},
		"version":                       {"-version"},
		"unknown flag":                  {"-verbose"},
		"flag's value":                  {"-version=perhaps"},
		"argument":                      {"serve"},
		"no config":                     {"-config", "/nowhere/shim.toml"},
		"config's folder":               {"-config", "/"},
		"unknown field":                 {"-config", file},
		"log level":                     {"-log-level", "loud"},
		"accelerator":                   {"-accelerator", "hvf"},
		"relative socket":               {"-listen", "shim.sock"},
		"relative socket of containerd": {"-containerd", "containerd.sock"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), program, args...)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			err := cmd.Run()
			if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
				t.Fatal(err)
			}
			text := fmt.Sprintf("$ nodevirt-shim %s\n-- stdout\n%s-- stderr\n%s-- exit code\n%d\n",
				strings.Join(args, " "), &stdout, &stderr, cmd.ProcessState.ExitCode())
			file := strings.NewReplacer(" ", "-", "'", "").Replace(name) + ".txt"
			golden.Assert(t, strings.ReplaceAll(text, dir, "DIR"), file)
		})
	}
}
