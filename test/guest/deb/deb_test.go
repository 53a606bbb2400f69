package deb

import (
	"archive/tar"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/needs"
)

func TestParse(t *testing.T) {
	got := parse("Package: a\nVersion: 1:2-3\nDepends: b (>= 1), c | d, e:any\nDescription: text\n Version: not this\nSHA256: ff\n\nPackage: f\n")
	if len(got) != 2 || got[0].Name != "a" || got[0].Version != "1:2-3" || got[0].SHA256 != "ff" || got[1].Name != "f" {
		t.Fatalf("%+v", got)
	}
	if want := []string{"b", "c", "e:any"}; !slices.Equal(got[0].Depends, want) {
		t.Errorf("depends on %q instead of %q", got[0].Depends, want)
	}
}

func TestSources(t *testing.T) {
	text := strings.Join([]string{
		"Debian main bookworm-security http://mirror/security/",
		"Debian main bookworm http://mirror/debian/",
		"Debian contrib bookworm http://mirror/debian/",
		"Debian main trixie http://mirror/debian/",
		" . nodistro http://elsewhere/",
	}, "\n")
	got := SourcesList(parseSources(text, "bookworm"))
	want := "deb http://mirror/debian bookworm main\ndeb http://mirror/security bookworm-security main\n"
	if got != want {
		t.Errorf("%q instead of %q", got, want)
	}
}

func TestUnknownPackage(t *testing.T) {
	if _, err := show(t.Context(), t.TempDir(), nil, []string{"busybox", "no-such-package-at-all"}); err == nil {
		t.Error("no error for a package that is not there")
	}
}

func TestDownloadAndRead(t *testing.T) {
	needs.Parts(t, "a Debian mirror")
	root := t.TempDir()
	found, err := Resolve(t.Context(), root, "busybox")
	assert.NilError(t, err)
	path, err := found[0].Download(t.Context(), root)
	assert.NilError(t, err)
	if again, err := found[0].Download(t.Context(), root); err != nil || again != path {
		t.Errorf("the second download gives %s, %v instead of %s", again, err, path)
	}
	var size int64
	err = Read(t.Context(), path, func(name string, h *tar.Header, _ io.Reader) error {
		if strings.HasSuffix(name, "bin/busybox") {
			size = h.Size
		}
		return nil
	})
	if err != nil || size < 100_000 {
		t.Errorf("busybox of %d bytes, %v", size, err)
	}
	stop := errors.New("stop")
	if err := Read(t.Context(), path, func(string, *tar.Header, io.Reader) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
}
