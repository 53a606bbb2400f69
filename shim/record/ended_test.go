package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestEnded: the end of a pod's guest outlives the shim, the oldest go first, and a UID is no path.
func TestEnded(t *testing.T) {
	root := t.TempDir()
	s, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, found, err := s.EndedOf("uid-1"); found || err != nil {
		t.Errorf("%t, %v", found, err)
	}
	if err := s.PutEnded("uid-1", Ended{At: time.Unix(1, 0).UTC(), Reason: "Migrated", Message: "it is elsewhere"}); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(root); err != nil {
		t.Fatal(err)
	}
	if e, found, err := s.EndedOf("uid-1"); !found || err != nil || e.Reason != "Migrated" || e.Message != "it is elsewhere" {
		t.Errorf("%+v, %t, %v", e, found, err)
	}
	for _, uid := range []string{"", "../containers", "a/b", string(make([]byte, 200))} {
		if err := s.PutEnded(uid, Ended{}); err == nil {
			t.Errorf("the UID %q is accepted", uid)
		}
		if _, found, _ := s.EndedOf(uid); found {
			t.Errorf("the UID %q is found", uid)
		}
	}
	const most = 20
	for i := range most {
		name := filepath.Join(s.endedDir(), fmt.Sprintf("old-%d.json", i))
		old := time.Now().Add(-time.Hour)
		if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Chtimes(name, old, old)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.PutEnded("uid-2", Ended{}), s.pruneEnded(most)); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(s.endedDir())
	if err != nil || len(entries) > most {
		t.Errorf("%d ends, %v", len(entries), err)
	}
	for _, uid := range []string{"uid-1", "uid-2"} {
		if _, found, err := s.EndedOf(uid); !found || err != nil {
			t.Errorf("%s: %t, %v", uid, found, err)
		}
	}
}
