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

// TestControllerNeedsNothing: the controller can be the only file of its image, as it links neither
// libvirt nor anything else that is C.
func TestControllerNeedsNothing(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "github.com/nodevirt/nodevirt/cmd/nodevirt-controller")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	packages := strings.Fields(string(out))
	if !slices.Contains(packages, "github.com/nodevirt/nodevirt/controller") {
		t.Errorf("the controller's own package is not among its %d", len(packages))
	}
	for _, p := range []string{"libvirt.org/go/libvirt", "runtime/cgo", "github.com/nodevirt/nodevirt/shim"} {
		if slices.Contains(packages, p) {
			t.Errorf("the controller links %s", p)
		}
	}
}
