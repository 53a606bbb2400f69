package image_test

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/nodevirt/nodevirt/deploy/image"
)

// TestReproducible: the digest depends on the program's bytes alone.
func TestReproducible(t *testing.T) {
	var digests []string
	for n, text := range []string{"program", "program", "another"} {
		file := filepath.Join(t.TempDir(), "built")
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, time.Time{}, time.Unix(int64(n), 0)); err != nil {
			t.Fatal(err)
		}
		img, err := image.Controller(file, "v1")
		if err != nil {
			t.Fatal(err)
		}
		digest, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest.String())
	}
	if digests[0] != digests[1] || digests[0] == digests[2] {
		t.Errorf("digests of two equal programs and of another: %v", digests)
	}
}

// TestContents: the image has the program only, and runs it as an unprivileged user.
func TestContents(t *testing.T) {
	file := filepath.Join(t.TempDir(), "built")
	if err := os.WriteFile(file, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	img, err := image.Controller(file, "v1")
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c := config.Config; c.User != "65532:65532" || len(c.Entrypoint) != 1 || c.Entrypoint[0] != "/nodevirt-controller" {
		t.Errorf("config: %+v", c)
	}
	files := mutate.Extract(img)
	defer files.Close()
	archive := tar.NewReader(files)
	h, err := archive.Next()
	if err != nil || h.Name != "nodevirt-controller" || h.Mode != 0o755 || h.Size != int64(len("program")) {
		t.Errorf("first file: %+v, %v", h, err)
	}
	if h, err := archive.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("second file: %+v, %v", h, err)
	}
	if _, err := image.Controller(file+"x", "v1"); err == nil {
		t.Error("no program is no error")
	}
}

// TestControllers: the index has an image of each program, for its architecture.
func TestControllers(t *testing.T) {
	programs := map[string]string{}
	for _, arch := range []string{"amd64", "arm64"} {
		programs[arch] = filepath.Join(t.TempDir(), "built")
		if err := os.WriteFile(programs[arch], []byte("program of "+arch), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	index, err := image.Controllers(programs, "v1")
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range manifest.Manifests {
		img, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := img.ConfigFile()
		if err != nil || config.Architecture != d.Platform.Architecture {
			t.Errorf("the image of %s is for %s, %v", d.Platform, config.Architecture, err)
		}
		files := mutate.Extract(img)
		archive := tar.NewReader(files)
		if _, err := archive.Next(); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err := errors.Join(err, files.Close()); err != nil {
			t.Fatal(err)
		}
		got = append(got, d.Platform.String()+": "+string(text))
	}
	if want := []string{"linux/amd64: program of amd64", "linux/arm64: program of arm64"}; !slices.Equal(got, want) {
		t.Errorf("images %q, not %q", got, want)
	}
	if _, err := image.Controllers(map[string]string{"arm64": "none"}, "v1"); err == nil {
		t.Error("no program is no error")
	}
}

// TestInstaller: the image has the installer and the programs of a node, and depends on their bytes alone.
func TestInstaller(t *testing.T) {
	names := []string{"nodevirt", "nodevirt-qemu", "nodevirt-shim", "nodevirt-view"}
	folder := func(text string) string {
		dir := t.TempDir()
		for _, name := range append(names, "other") {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(name+text), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	var digests []string
	for _, text := range []string{"1", "1", "2"} {
		dir := folder(text)
		img, err := image.Installer(filepath.Join(dir, "other"), dir, "v1")
		if err != nil {
			t.Fatal(err)
		}
		digest, err := img.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest.String())
		config, err := img.ConfigFile()
		if err != nil || config.Config.User != "0:0" || !slices.Equal(config.Config.Entrypoint, []string{"/nodevirt-installer"}) {
			t.Errorf("config %+v, %v", config, err)
		}
		var got []string
		files := mutate.Extract(img)
		defer files.Close()
		for archive := tar.NewReader(files); ; {
			h, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if h.Mode != 0o755 || h.Uid != 0 {
				t.Errorf("%s has mode %o and owner %d", h.Name, h.Mode, h.Uid)
			}
			got = append(got, h.Name)
		}
		want := []string{"nodevirt-installer", "programs", "programs/nodevirt", "programs/nodevirt-qemu", "programs/nodevirt-shim", "programs/nodevirt-view"}
		for i := range got {
			got[i] = strings.TrimSuffix(got[i], "/")
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("files %v, not %v", got, want)
		}
	}
	if digests[0] != digests[1] || digests[0] == digests[2] {
		t.Errorf("digests of two equal images and of another: %v", digests)
	}
	for _, name := range names {
		dir := folder("1")
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if _, err := image.Installer(filepath.Join(dir, "other"), dir, "v1"); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// TestNeedNothing: the controller and the installer run in images without libraries, as they link
// neither libvirt nor anything else that is C.
func TestNeedNothing(t *testing.T) {
	for program, own := range map[string]string{
		"nodevirt-controller": "github.com/nodevirt/nodevirt/controller",
		"nodevirt-installer":  "github.com/nodevirt/nodevirt/cmd/nodevirt-installer/internal/agent",
	} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "github.com/nodevirt/nodevirt/cmd/"+program)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", cmd, err)
		}
		packages := strings.Fields(string(out))
		if !slices.Contains(packages, own) {
			t.Errorf("%s is not among the %d packages of %s", own, len(packages), program)
		}
		for _, p := range []string{"libvirt.org/go/libvirt", "runtime/cgo", "github.com/nodevirt/nodevirt/shim"} {
			if slices.Contains(packages, p) {
				t.Errorf("%s links %s", program, p)
			}
		}
	}
}
