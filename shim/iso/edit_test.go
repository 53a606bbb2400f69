package iso_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodevirt/nodevirt/shim/iso"
	"github.com/nodevirt/nodevirt/test/isofs"
)

// TestEdit: a file changes for both of the image's trees, and for a process that has the image open; no
// other file does.
func TestEdit(t *testing.T) {
	large := strings.Repeat("a", 3*isofs.Block) + "end"
	files := map[string]string{"openstack/latest/meta_data.json": large, "openstack/latest/user_data": large, "meta_data.json": large, "grün": "1"}
	image := filepath.Join(t.TempDir(), "a.iso")
	if err := iso.Write(t.Context(), image, "a", add(files)); err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for _, name := range []string{"openstack/latest/meta_data.json", "meta_data.json", "grün"} {
		err := iso.Edit(image, name, func(content []byte) ([]byte, error) {
			if string(content) != files[name] {
				t.Errorf("%s has %d other bytes", name, len(content))
			}
			return bytes.Repeat([]byte("b"), len(content)), nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want := maps.Clone(files)
		want[name] = strings.Repeat("b", len(files[name]))
		files = want
		got := isofs.Read(t, fmt.Sprintf("/proc/self/fd/%d", open.Fd()))
		if diff := cmp.Diff(files, got.Files); diff != "" {
			t.Errorf("Rock Ridge (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(files, got.Joliet); diff != "" {
			t.Errorf("Joliet (-want +got):\n%s", diff)
		}
	}
}

func TestEditRefuses(t *testing.T) {
	image := filepath.Join(t.TempDir(), "a.iso")
	if err := iso.Write(t.Context(), image, "a", add(map[string]string{"d/a": "content"})); err != nil {
		t.Fatal(err)
	}
	same := func(b []byte) ([]byte, error) { return b, nil }
	for _, name := range []string{"a", "d", "d/b", "e/a", "d/a/a"} {
		if err := iso.Edit(image, name, same); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	err := iso.Edit(image, "d/a", func(b []byte) ([]byte, error) { return append(b, 'x'), nil })
	if err == nil || !strings.Contains(err.Error(), "8 bytes do not take the place of 7") {
		t.Errorf("a longer content: %v", err)
	}
	failed := errors.New("no change")
	if err := iso.Edit(image, "d/a", func([]byte) ([]byte, error) { return nil, failed }); !errors.Is(err, failed) {
		t.Errorf("a change that fails: %v", err)
	}
	if got := isofs.Read(t, image).Files["d/a"]; got != "content" {
		t.Errorf("the file is %q", got)
	}
	if err := iso.Edit(image+".", "d/a", same); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no image: %v", err)
	}
}
