package console

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheEscapeKeyLeavesAndIsNotTheGuests(t *testing.T) {
	for keys, want := range map[string]string{"ls\r\x1drm": "ls\r", "\x1d": "", "a\x03b": "a\x03b"} {
		var guest bytes.Buffer
		if err := forward(&guest, strings.NewReader(keys)); !errors.Is(err, ErrLeft) {
			t.Errorf("%q: %v", keys, err)
		}
		if guest.String() != want {
			t.Errorf("%q: the guest got %q, not %q", keys, guest.String(), want)
		}
	}
}

func TestALogIsFollowedToItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const at = "2026-01-02T12:00:00.000000000Z stdout "
	ended := make(chan struct{})
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- Follow(t.Context(), path, ended, w); _ = w.Close() }()
	write := func(text string) {
		if _, err := f.WriteString(text); err != nil {
			t.Error(err)
		}
	}
	write(at + "F one\n" + at + "P tw")
	read := make([]byte, 4)
	if _, err := io.ReadFull(r, read); err != nil || string(read) != "one\n" {
		t.Fatalf("%q, %v", read, err)
	}
	write("o\n" + at + "F  and a half\n")
	// The kubelet rotates.
	if err := os.Rename(path, path+".rotated"); err != nil {
		t.Fatal(err)
	}
	write(at + "F still there\n")
	if err := os.WriteFile(path, []byte(at+"F last\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	close(ended)
	rest, err := io.ReadAll(r)
	if err != nil || string(rest) != "two and a half\nstill there\nlast\n" {
		t.Errorf("%q, %v", rest, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
