package main

import (
	"errors"
	"io/fs"
	"testing"
)

// TestRun: the program says what it is for; a folder without a view starts nothing.
func TestRun(t *testing.T) {
	for _, args := range [][]string{nil, {"-help"}, {""}, {"a", "b"}, {"share", "a"}} {
		if err := run(args); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
	if err := run([]string{t.TempDir()}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no view: %v", err)
	}
}
