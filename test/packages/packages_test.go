//go:build packages

// Package packages_test checks the .deb and .rpm packages in bin/packages, which make test-packages
// builds: their content, whether two builds are the same, and how dpkg installs, upgrades and removes
// them in a folder. It never changes the packages of this machine.
package packages_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/golden"
)

const built = "../../bin/packages"

// run runs a program, and returns its output.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := try(t.Context(), name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func try(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "PATH=/usr/sbin:/usr/bin:/sbin:/bin")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// file returns the only package in a folder that matches a pattern.
func file(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("packages %s in %s: %v, %v; run make packages-deb", pattern, dir, found, err)
	}
	return found[0]
}

var (
	debs = map[string]string{"nodevirt": "nodevirt_*_amd64.deb", "nodevirt-node": "nodevirt-node_*_amd64.deb"}
	rpms = map[string]string{"nodevirt": "nodevirt-[0-9]*.x86_64.rpm", "nodevirt-node": "nodevirt-node-[0-9]*.x86_64.rpm"}
	// changing are the parts of a list of files that differ between commits.
	changing = regexp.MustCompile(`^(\S+) +(root/root) +\d+ \S+ \S+ \.`)
	version  = regexp.MustCompile(`= [^ ,)]+-1\b`)
)

// TestDebs compares files, owners, modes and dependencies with the golden files.
func TestDebs(t *testing.T) {
	for name, pattern := range debs {
		path := file(t, built, pattern)
		var list strings.Builder
		for line := range strings.Lines(run(t, "dpkg-deb", "--contents", path)) {
			if !strings.HasPrefix(line, "d") && !strings.Contains(line, "/man8/") {
				list.WriteString(changing.ReplaceAllString(line, "$1 $2 "))
			}
		}
		list.WriteString("\n" + run(t, "dpkg-deb", "--field", path, "Package", "Architecture", "Section", "Depends", "Recommends"))
		golden.Assert(t, version.ReplaceAllString(list.String(), "= VERSION"), name+".deb.golden")
	}
}

func TestRPMs(t *testing.T) {
	for name, pattern := range rpms {
		path := file(t, built, pattern)
		list := run(t, "rpm", "--query", "--package", path,
			"--queryformat", `[%{FILEMODES:perms} %{FILEUSERNAME}/%{FILEGROUPNAME} %{FILENAMES} %{FILEFLAGS:fflags}\n]`)
		var kept []string
		for line := range strings.Lines(list) {
			if !strings.Contains(line, "/man8/") {
				kept = append(kept, strings.TrimSpace(line)+"\n")
			}
		}
		text := strings.Join(kept, "") + "\n" + run(t, "rpm", "--query", "--package", "--requires", path) +
			"\n" + run(t, "rpm", "--query", "--package", "--recommends", path)
		golden.Assert(t, version.ReplaceAllString(text, "= VERSION"), name+".rpm.golden")
	}
}

// TestManPages: each subcommand of the program has a page in the package.
func TestManPages(t *testing.T) {
	have := run(t, "dpkg-deb", "--contents", file(t, built, debs["nodevirt"]))
	dir := t.TempDir()
	run(t, filepath.Join(built, "programs/nodevirt"), "man", dir)
	pages, err := os.ReadDir(dir)
	if err != nil || len(pages) == 0 {
		t.Fatalf("no man pages: %v", err)
	}
	for _, page := range pages {
		if !strings.Contains(have, "/usr/share/man/man8/"+page.Name()+".gz\n") {
			t.Errorf("the package has no man page %s", page.Name())
		}
	}
}

// TestUnits: what the units run is in the package, or in another one that each node has.
func TestUnits(t *testing.T) {
	dir := t.TempDir()
	others := map[string]string{"/usr/sbin/tgtd": "tgt", "/usr/bin/chmod": "coreutils", "/bin/sh": "dash"}
	run(t, "dpkg-deb", "--extract", file(t, built, debs["nodevirt-node"]), dir)
	for _, unit := range []string{
		"nodevirt-shim.service", "nodevirt-tgtd.service", "libvirtd.service.d/nodevirt.conf", "virtqemud.service.d/nodevirt.conf",
		"nodevirt-.scope.d/nodevirt.conf",
	} {
		text, err := os.ReadFile(filepath.Join(dir, "usr/lib/systemd/system", unit))
		if err != nil {
			t.Error(err)
		}
		for _, line := range regexp.MustCompile(`(?m)^ExecStart(?:Pre)?=-?(.*)`).FindAllSubmatch(text, -1) {
			program, _, _ := strings.Cut(string(line[1]), " ")
			for _, p := range append(regexp.MustCompile(`/usr/libexec/[\w/-]+`).FindAllString(string(line[1]), -1), program) {
				if _, err := os.Stat(filepath.Join(dir, p)); err != nil && others[p] == "" {
					t.Errorf("%s runs a program that the package does not have: %v", unit, err)
				}
			}
		}
	}
}

func TestLintian(t *testing.T) {
	args := []string{"--no-cfg", "--allow-root", "--fail-on", "error,warning"}
	for _, pattern := range debs {
		args = append(args, file(t, built, pattern))
	}
	if out := run(t, "lintian", args...); out != "" {
		t.Errorf("lintian:\n%s", out)
	}
}

// TestReproducible links the programs and builds the packages a second time.
func TestReproducible(t *testing.T) {
	dir := t.TempDir()
	programs := filepath.Join(dir, "programs")
	first := filepath.Join(built, "programs")
	linked := strings.TrimSpace(strings.TrimPrefix(run(t, filepath.Join(first, "nodevirt"), "--version"), "nodevirt "))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-tags", "grpcnotrace", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -buildid= -X main.version="+linked, "-o", programs+"/", "../../cmd/nodevirt", "../../cmd/nodevirt-shim",
		"../../cmd/nodevirt-qemu", "../../cmd/nodevirt-view")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("link the programs again: %v\n%s", err, out)
	}
	build(t, dir, programs, linked)
	for _, pattern := range slices.Concat([]string{"programs/*"}, patterns(debs), patterns(rpms)) {
		found, err := filepath.Glob(filepath.Join(built, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		for _, path := range found {
			again := filepath.Join(dir, strings.TrimPrefix(path, built))
			one, err1 := os.ReadFile(path)
			two, err2 := os.ReadFile(again)
			if err1 != nil || err2 != nil || !bytes.Equal(one, two) {
				t.Errorf("%s differs from a second build: %v, %v", filepath.Base(path), err1, err2)
			}
		}
	}
}

func patterns(m map[string]string) (all []string) {
	for _, p := range m {
		all = append(all, p)
	}
	return all
}

// build builds the packages of a version.
func build(t *testing.T, out, programs, version string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../../deploy/packages/build", out, programs)
	cmd.Env = append(os.Environ(), "VERSION="+version)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the packages: %v\n%s", err, text)
	}
}
