package handover

import (
	"os"
	"path/filepath"
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
