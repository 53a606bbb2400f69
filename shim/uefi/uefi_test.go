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
			got, err := uefi.Find(tt.dirs, uefi.Wanted{Machine: tt.machine, Secure: tt.secure})
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
		if got, err := uefi.Find([]string{tt.dir}, uefi.Wanted{Machine: tt.machine, Secure: tt.secure}); !errors.Is(err, uefi.ErrMissing) || !strings.Contains(err.Error(), "install ovmf") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := uefi.Find([]string{write(t, map[string]string{"1.json": "{"})}, uefi.Wanted{Machine: "q35"}); err == nil || errors.Is(err, uefi.ErrMissing) {
		t.Errorf("a broken descriptor: %v", err)
	}
}

// TestEncrypted: firmware for encrypted guests is listed by what it can do, and may keep no variables.
func TestEncrypted(t *testing.T) {
	stateless := func(name, features string) string {
		return strings.Replace(describe(name, q35, features), `"device": "flash"`, `"device": "flash", "mode": "stateless"`, 1)
	}
	memory := strings.Replace(describe("", q35, `"intel-tdx", "secure-boot", "enrolled-keys"`), `"device": "flash"`,
		`"device": "memory", "filename": "/ovmf/tdx.fd"`, 1)
	dirs := []string{write(t, map[string]string{
		"50-plain.json": describe("plain", both, ""), "60-sev.json": describe("sev", both, `"amd-sev"`),
		"61-snp.json": stateless("snp", `"amd-sev", "amd-sev-es", "amd-sev-snp"`), "62-tdx.json": memory,
	})}
	for _, tt := range []struct {
		wanted uefi.Wanted
		want   uefi.Firmware
	}{
		{uefi.Wanted{Machine: "q35", Feature: "amd-sev"}, uefi.Firmware{Code: "/ovmf/sev.code", Variables: "/ovmf/sev.vars"}},
		{uefi.Wanted{Machine: "q35", Feature: "amd-sev-snp", Stateless: true}, uefi.Firmware{Code: "/ovmf/snp.code"}},
		{uefi.Wanted{Machine: "q35", Feature: "intel-tdx", Stateless: true, Secure: true}, uefi.Firmware{Code: "/ovmf/tdx.fd"}},
	} {
		if got, err := uefi.Find(dirs, tt.wanted); err != nil || got != tt.want {
			t.Errorf("%+v: %+v, %v, want %+v", tt.wanted, got, err, tt.want)
		}
	}
	for _, wanted := range []uefi.Wanted{
		{Machine: "q35", Feature: "amd-sev-es"},                  // whose firmware keeps no variables
		{Machine: "q35", Feature: "intel-tdx", Stateless: true},  // whose firmware enforces secure boot
		{Machine: "pc", Feature: "amd-sev-snp", Stateless: true}, // for which there is no such machine
	} {
		if _, err := uefi.Find(dirs, wanted); !errors.Is(err, uefi.ErrMissing) || !strings.Contains(err.Error(), "with the feature "+wanted.Feature) {
			t.Errorf("%+v: %v", wanted, err)
		}
	}
}
