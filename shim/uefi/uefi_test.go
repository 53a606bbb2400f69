package uefi_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/shim/uefi"
)

// describe returns a descriptor like those of Debian.
func describe(name, machines, features string) string {
	return fmt.Sprintf(`{"description": "UEFI", "interface-types": ["uefi"], "mapping": {"device": "flash",
		"executable": {"filename": "/ovmf/%[1]s.code", "format": "raw"}, "nvram-template": {"filename": "/ovmf/%[1]s.vars", "format": "raw"}},
		"targets": [{"architecture": "x86_64", "machines": [%[2]s]}], "features": [%[3]s], "tags": []}`, name, machines, features)
}

func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const both, q35 = `"pc-i440fx-*", "pc-q35-*"`, `"pc-q35-*"`

func debian() map[string]string {
	return map[string]string{
		"40-enrolled.json": describe("enrolled", q35, `"enrolled-keys", "requires-smm", "secure-boot"`),
		"50-secure.json":   describe("secure", q35, `"requires-smm", "secure-boot"`),
		"60-plain.json":    describe("plain", both, `"acpi-s3"`),
		"70-late.json":     describe("late", both, `"acpi-s3"`),
		"notes.txt":        "no descriptor",
	}
}

func TestFind(t *testing.T) {
	usual := write(t, debian())
	missing := filepath.Join(usual, "missing")
	for _, tt := range []struct {
		name    string
		dirs    []string
		machine string
		secure  bool
		want    string
	}{
		{"plain", []string{missing, usual}, "q35", false, "/ovmf/plain.code"},
		{"i440fx", []string{missing, usual}, "pc", false, "/ovmf/plain.code"},
		{"a version", []string{missing, usual}, "pc-i440fx-7.2", false, "/ovmf/plain.code"},
		{"secure boot", []string{missing, usual}, "q35", true, "/ovmf/enrolled.code"},
		{"replaced", []string{write(t, map[string]string{"60-plain.json": describe("own", both, "")}), usual}, "q35", false, "/ovmf/own.code"},
		{"hidden", []string{write(t, map[string]string{"60-plain.json": ""}), usual}, "q35", false, "/ovmf/late.code"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := uefi.Find(tt.dirs, tt.machine, tt.secure)
			if err != nil || got.Code != tt.want || got.SMM != tt.secure || got.Variables != strings.Replace(tt.want, ".code", ".vars", 1) {
				t.Errorf("got %+v, %v, want %s", got, err, tt.want)
			}
		})
	}
}

func TestMissing(t *testing.T) {
	usual := debian()
	delete(usual, "40-enrolled.json")
	flat := strings.Replace(describe("flat", both, ""), `"device": "flash"`, `"device": "flash", "mode": "stateless"`, 1)
	for name, tt := range map[string]struct {
		dir, machine string
		secure       bool
	}{
		"no folder":               {"/nonexistent", "q35", false},
		"no keys":                 {write(t, usual), "q35", true},
		"secure boot of i440fx":   {write(t, debian()), "pc", true},
		"no memory for variables": {write(t, map[string]string{"1.json": flat}), "q35", false},
	} {
		if got, err := uefi.Find([]string{tt.dir}, tt.machine, tt.secure); !errors.Is(err, uefi.ErrMissing) || !strings.Contains(err.Error(), "install ovmf") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := uefi.Find([]string{write(t, map[string]string{"1.json": "{"})}, "q35", false); err == nil || errors.Is(err, uefi.ErrMissing) {
		t.Errorf("a broken descriptor: %v", err)
	}
}
