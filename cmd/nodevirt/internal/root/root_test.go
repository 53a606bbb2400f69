package root_test

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/root"
)

// command is nodevirt as a user without settings has it.
func command(t *testing.T) *cobra.Command {
	t.Helper()
	t.Setenv("CONTAINER_RUNTIME_ENDPOINT", "")
	t.Setenv("CONTAINERD_ADDRESS", "")
	return root.Command("v0")
}

func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := command(t)
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestHelp(t *testing.T) {
	for _, path := range [][]string{
		{}, {"run"}, {"ps"}, {"inspect"}, {"console"}, {"vnc"}, {"rm"}, {"doctor"}, {"image"}, {"image", "build"}, {"image", "inspect"}, {"convert"},
	} {
		name := strings.Join(append([]string{"nodevirt"}, path...), "-")
		t.Run(name, func(t *testing.T) {
			out, err := execute(t, append(path, "--help")...)
			if err != nil {
				t.Fatal(err)
			}
			for i, line := range strings.Split(out, "\n") {
				if strings.HasSuffix(line, " ") {
					t.Errorf("line %d ends with a space", i+1)
				}
			}
			out = strings.ReplaceAll(out, `"`+runtime.GOARCH+`"`, `"ARCH"`)
			golden.Assert(t, out, name+".txt")
		})
	}
}

func TestWrongArgumentsAreAnsweredWithTheRightOnes(t *testing.T) {
	for line, want := range map[string]string{
		"run":            `want "nodevirt run IMAGE [flags]"; see "nodevirt run --help"`,
		"run a b":        `want "nodevirt run IMAGE [flags]"`,
		"ps extra":       `want "nodevirt ps [flags]"`,
		"rm":             `want "nodevirt rm VM... [flags]"`,
		"image foo":      `unknown command "foo" for "nodevirt image": want "nodevirt image COMMAND"`,
		"image build":    `want "nodevirt image build DISK`,
		"image inspect":  `want "nodevirt image inspect REF`,
		"no-such-verb x": `unknown command "no-such-verb" for "nodevirt"`,
	} {
		if _, err := execute(t, strings.Fields(line)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("nodevirt %s: %v, not %s", line, err, want)
		}
	}
}

func TestEveryCommandHasAManPage(t *testing.T) {
	dir := t.TempDir()
	if _, err := execute(t, "man", dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"nodevirt", "nodevirt-run", "nodevirt-doctor", "nodevirt-image-build"} {
		page, err := os.ReadFile(filepath.Join(dir, name+".8"))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{".SH SYNOPSIS", ".SH EXAMPLE"} {
			if !strings.Contains(string(page), want) {
				t.Errorf("%s has no %s", name, want)
			}
		}
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out, err := execute(t, "completion", shell); err != nil || !strings.Contains(out, "nodevirt") {
			t.Errorf("%s: %v", shell, err)
		}
	}
	out, err := execute(t, "__complete", "run", "--pull", "")
	if err != nil || !strings.Contains(out, "missing\nalways\nnever\n") {
		t.Errorf("run --pull completes to %q, %v", out, err)
	}
}

func TestAMistakeIsNamed(t *testing.T) {
	key := filepath.Join(t.TempDir(), "id")
	if err := os.WriteFile(key, []byte("-----BEGIN OPENSSH PRIVATE KEY-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"runn":                                 `unknown command "runn"`,
		"run":                                  "accepts 1 arg(s), received 0",
		"run x --memory lots":                  `--memory "lots": want a quantity such as 512Mi`,
		"run x --cpus 0":                       `--cpus "0": want a quantity`,
		"run x --pull often":                   `--pull "often": want missing, always or never`,
		"run x --name A_B":                     `--name "A_B":`,
		"run x --cloud-init /no/file":          "--cloud-init: open /no/file: no such file",
		"run x --ssh-key " + key:               "that is a private key: name the public one",
		"run x -d --rm":                        "[detach rm] were all set",
		"run x --runtime-endpoint /no/sock":    "no shim at /no/sock",
		"ps -o yaml":                           "want table or json",
		"convert":                              `required flag(s) "filename" not set`,
		"convert -f /no/file":                  "read the manifests: open /no/file: no such file",
		"image build x":                        `required flag(s) "tag" not set`,
		"image build /no/disk -t x:1":          "open the disk: stat /no/disk: no such file",
		"image build /no/disk -t X":            `image reference "X"`,
		"image build x -t x:1 --push -o y.tar": "[output push] were all set",
		"doctor --config /no/file":             "read the config file: open /no/file",
	} {
		out, err := execute(t, strings.Fields(line)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("nodevirt %s: %v, not %q", line, err, want)
		}
		if out != "" {
			t.Errorf("nodevirt %s wrote %q beside its error", line, out)
		}
	}
}

func TestWithoutContainerdADestinationMustBeNamed(t *testing.T) {
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(disk, make([]byte, 4096), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := execute(t, "image", "build", disk, "-t", "x:1", "--containerd", "/no/sock")
	if err == nil || !strings.Contains(err.Error(), "/no/sock") || !strings.Contains(err.Error(), "-o FILE") {
		t.Errorf("got %v", err)
	}
}
