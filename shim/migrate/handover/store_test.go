package handover

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestFile(t *testing.T) {
	dir := t.TempDir()
	f := NewFile(dir)
	if _, found, err := f.Get(); found || err != nil {
		t.Fatal(found, err)
	}
	want := NewSending(testMigration, testVM)
	want.State, want.Reason = Kept, "why"
	if err := f.Put(want); err != nil {
		t.Fatal(err)
	}
	if got, found, err := f.Get(); !found || err != nil || got != want {
		t.Errorf("%+v, %v, %v", got, found, err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("files: %v", entries)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := f.Put(want); err == nil {
		t.Error("a record is written without its folder")
	}
}

// TestReplacements: short and long records replace each other, and a file of an older version.
func TestReplacements(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "migration.json")
	old := `{"version": 1, "migration": "` + testMigration + `", "vm": "` + testVM + `", "state": "sending"}`
	if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	f := NewFile(dir)
	var inode uint64
	for i, reason := range []string{"", "", "why", strings.Repeat("\x01", maxReason), strings.Repeat("x", 3868), "", ""} {
		want := NewSending(testMigration, testVM)
		want.State, want.Reason = Kept, reason
		if err := f.Put(want); err != nil {
			t.Fatal(err)
		}
		// A former version reads the whole file as JSON.
		var got Record
		text, err := os.ReadFile(path)
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err != nil || got != want {
			t.Errorf("%d: %+v, %v", i, got, err)
		}
		if got, found, err := f.Get(); !found || err != nil || got != want {
			t.Errorf("%d: %+v, %v, %v", i, got, found, err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		was := inode
		inode = info.Sys().(*syscall.Stat_t).Ino
		if inPlace := i == 1 || i == 2 || i == 6; inPlace && inode != was {
			t.Errorf("%d: a short record after a short one is a new file", i)
		} else if !inPlace && inode == was {
			t.Errorf("%d: the file is written in place", i)
		}
	}
}

// BenchmarkPut is what a guest waits for at its hand-over.
func BenchmarkPut(b *testing.B) {
	f, r := NewFile(b.TempDir()), NewSending(testMigration, testVM)
	for b.Loop() {
		if err := f.Put(r); err != nil {
			b.Fatal(err)
		}
	}
}

func TestUnusableRecords(t *testing.T) {
	for name, text := range map[string]string{
		"empty":           "",
		"not JSON":        "{",
		"no version":      `{"migration":"m","vm":"v","state":"kept"}`,
		"a newer version": `{"version":2,"migration":"m","vm":"v","state":"kept"}`,
		"unknown state":   `{"version":1,"migration":"m","vm":"v","state":"gone"}`,
		"no VM":           `{"version":1,"migration":"m","state":"kept"}`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "migration.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if r, _, err := NewFile(dir).Get(); err == nil {
			t.Errorf("%s: read as %+v", name, r)
		}
	}
}

func TestMayResume(t *testing.T) {
	for state, want := range map[State]bool{
		Sending: false, HandedOver: false, Left: false, Kept: true, Incoming: false, Taken: true, Refused: false,
	} {
		if got := (Record{State: state}).MayResume(); got != want {
			t.Errorf("%s: %v", state, got)
		}
	}
}
