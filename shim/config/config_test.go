package config_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"
	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/shim/config"
)

// example is the file that a node's owner begins with.
const example = "../../deploy/nodevirt-shim.toml"

func keep(*config.Config) error { return nil }

func TestDefault(t *testing.T) {
	c, err := config.Load("", keep)
	if err != nil {
		t.Fatalf("the defaults don't pass the checks: %v", err)
	}
	if diff := cmp.Diff(config.Default(), c); diff != "" {
		t.Errorf("without a file:\n%s", diff)
	}
	golden.Assert(t, marshal(t, c), "default.toml")
}

// TestExample: the example has every field, says its default, and explains it.
func TestExample(t *testing.T) {
	c, err := config.Load(example, keep)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(config.Default(), c); diff != "" {
		t.Errorf("the example's values are not the defaults:\n%s", diff)
	}
	text, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fields(t, []byte(marshal(t, c))), fields(t, text)); diff != "" {
		t.Errorf("the example's fields are not those that there are:\n%s", diff)
	}
	comment := ""
	for line := range strings.Lines(string(text)) {
		switch {
		case strings.HasPrefix(line, "#"):
			comment = line
		case strings.Contains(line, "=") && comment == "" && !strings.HasPrefix(line, "uid_count") && !strings.HasPrefix(line, "qemu_img"):
			t.Errorf("no comment above %q", line)
		default:
			comment = ""
		}
	}
}

func marshal(t *testing.T, c config.Config) string {
	t.Helper()
	text, err := toml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// fields are the paths of a TOML file's fields.
func fields(t *testing.T, text []byte) map[string]bool {
	t.Helper()
	var tree map[string]any
	if err := toml.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for name, v := range tree {
		table, ok := v.(map[string]any)
		if !ok {
			all[name] = true
		}
		for inner := range table {
			all[name+"."+inner] = true
		}
	}
	return all
}

func TestLoad(t *testing.T) {
	path := file(t, `
log_level = "debug"
handler = "kubevirt"
[vm]
overhead_memory = "1Gi"
accelerator = "kvm"
`)
	c, err := config.Load(path, func(c *config.Config) error {
		if c.Handler != "kubevirt" {
			t.Errorf("flags come before the file: handler %q", c.Handler)
		}
		c.VM.Accelerator = "tcg"
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.LogLevel, want.Handler = slog.LevelDebug, "kubevirt"
	want.VM.OverheadMemory, want.VM.Accelerator = 1<<30, "tcg"
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
}

// TestEmulator: what counts is the program that the kernel names, not the name of a link to it or of a script.
func TestEmulator(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	write("qemu-system-x86_64", "\x7fELF")
	write("other", "\x7fELF")
	write("qemu-system-script", "#!/bin/sh\nexec other")
	link("qemu-system-x86_64", "kvm")
	link("kvm", "emulator")
	link("other", "qemu-kvm")
	link("qemu-system-script", "qemu-kvm-script")
	link("absent", "qemu-kvm-dangling")
	link("qemu-kvm-loop", "qemu-kvm-loop")
	for name, want := range map[string]string{
		"qemu-system-x86_64": "", "kvm": "", "emulator": "", "qemu-system-absent": "",
		"other": "does not have QEMU's name", "qemu-kvm": "does not have QEMU's name", "absent": "does not have QEMU's name",
		"qemu-system-script": "is a script", "qemu-kvm-script": "is a script",
		"qemu-kvm-dangling": "no such file", "qemu-kvm-loop": "too many",
	} {
		for _, field := range []string{"vm.emulator", "vm.foreign_emulators.arm64"} {
			_, err := config.Load(file(t, fmt.Sprintf("%s = %q", field, filepath.Join(dir, name))), keep)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), field+":") || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s = %s: %v, want %q", field, name, err, want)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	dir := strings.Repeat("d", 120)
	for name, text := range map[string]string{
		"unknown field":          `lisen = "/run/x.sock"`,
		"unknown field in table": "[vm]\nuid_bas = 5000",
		"another program":        "[vm]\nemulator = '/opt/vm/emulator'",
		"unknown table":          "[vms]\nuid_base = 5000",
		"wrong type":             `listen = 5`,
		"syntax":                 `listen = `,
		"log level":              `log_level = "loud"`,
		"relative paths":         "listen = 'a'\nroot = 'b'\nrun = 'c'\n[containerd]\naddress = 'd'\n[libvirt]\nrun = 'e'\n[vm]\nemulator = 'f'\nresolv_conf = 'g'\n[kubernetes]\nkubeconfig = 'h'",
		"empty":                  "[containerd]\nnamespace = ''\nsnapshotter = ''\n[libvirt]\nuri = ''\n[tools]\ndnsmasq = ''\nqemu_img = ''",
		"long listen":            `listen = "/` + dir + `"`,
		"long run":               `run = "/` + dir[:28] + `"`,
		"empty handler":          `handler = ""`,
		"handler of containerd":  "handler = 'runc'\n[containerd]\nsandbox_handler = 'runc'",
		"accelerator":            "[vm]\naccelerator = 'hvf'",
		"landlock":               "[vm]\nlandlock = 'on'",
		"tracing":                "[tracing]\nendpoint = 'https://collector:4317'\nratio = 1.5\nca = 'ca.pem'",
		"tracing without TLS":    "[tracing]\nendpoint = 'collector:4317'\ninsecure = true\nca = '/etc/ca.pem'",
		"quantity":               "[vm]\noverhead_memory = '256 megs'",
		"negative quantity":      "[vm]\noverhead_memory = '-1Mi'",
		"huge quantity":          "[vm]\noverhead_memory = '8Ei'",
		"long quantity":          "[vm]\noverhead_memory = '" + strings.Repeat("9", 100) + "'",
		"negative bytes":         "[vm]\noverhead_memory = -1",
		"small log":              "[vm]\nlog_limit = '1Mi'",
		"stream address":         "[stream]\naddress = '0.0.0.0:10010'",
		"stream socket":          "[stream]\naddress = '/run/nodevirt/stream.sock'",
		"idle timeout":           "[stream]\nidle_timeout = '4 hours'",
		"negative idle timeout":  "[stream]\nidle_timeout = '-1s'",
		"large overhead":         "[vm]\noverhead_memory = '2Ti'",
		"no disk":                "[vm]\nmax_disk_size = '0'",
		"disk past qcow2":        "[vm]\nmax_disk_size = '3Pi'",
		"disk size":              "[vm]\nmax_disk_size = 'large'",
		"ids of accounts":        "[vm]\nuid_base = 0",
		"no ids":                 "[vm]\nuid_count = 0",
		"ids past the end":       "[vm]\nuid_base = 4294967000\nuid_count = 65536",
		"ids into file systems":  "[vm]\nuid_base = 1912602600\nuid_count = 25",
		"ids in file systems":    "[vm]\nuid_base = 2147483647\nuid_count = 1",
		"negative ids":           "[vm]\nuid_base = -1",
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t, text)
			_, err := config.Load(path, keep)
			if err == nil {
				t.Fatal("no error")
			}
			got := strings.ReplaceAll(err.Error(), path, "FILE")
			golden.Assert(t, fmt.Sprintf("%s\n\n%s\n", text, got), strings.ReplaceAll(name, " ", "-")+".txt")
		})
	}
}

func TestLongestRun(t *testing.T) {
	longest := "/" + strings.Repeat("d", 27)
	if _, err := config.Load(file(t, fmt.Sprintf("run = %q", longest)), keep); err != nil {
		t.Error(err)
	}
}

func TestNoFile(t *testing.T) {
	_, err := config.Load("/nowhere/shim.toml", keep)
	const want = "read the config file: open /nowhere/shim.toml: no such file or directory"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestUnit holds the unit's limits against what the shim needs.
func TestUnit(t *testing.T) {
	text, err := os.ReadFile("../../deploy/systemd/nodevirt-shim.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"Type=notify", "Restart=always", "KillMode=process", "PrivateMounts=yes"} {
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(line) + `$`).Match(text) {
			t.Errorf("the unit does not contain %s", line)
		}
	}
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shim.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
