package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// TestUnsteady: the tracked list names tests of this checkout, with a date and a symptom.
func TestUnsteady(t *testing.T) {
	all, err := readUnsteady(list)
	assert.NilError(t, err)
	for _, u := range all {
		_, err := time.Parse(time.DateOnly, u.since)
		assert.NilError(t, err, u.test)
		assert.Assert(t, u.seen != "", u.test)
		files, err := filepath.Glob(filepath.Join("../../..", u.pkg, "*_test.go"))
		assert.NilError(t, err)
		found := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			assert.NilError(t, err)
			found = found || strings.Contains(string(text), "\nfunc "+u.test+"(t *testing.T)")
		}
		assert.Assert(t, found, "%s: no test %s; remove its row", u.pkg, u.test)
	}
}

// TestLate: a test of the list is reported apart from a new one.
func TestLate(t *testing.T) {
	known, err := readUnsteady("# a list\na/b\tTestOld\t2026-01-02\ta timeout\n")
	assert.NilError(t, err)
	got := late(map[string][]string{"example.com/m/a/b": {"TestOld", "TestNew"}, "example.com/m/c": {"TestOld"}}, known)
	assert.Equal(t, got, `
Failed once, and passed at the second try:
  TestOld of example.com/m/a/b: unsteady since 2026-01-02
  TestNew of example.com/m/a/b: not in test/cmd/gotest/unsteady.tsv: add it there, and repair it
  TestOld of example.com/m/c: not in test/cmd/gotest/unsteady.tsv: add it there, and repair it
`)
	_, err = readUnsteady("a/b\tTestOld\n")
	assert.ErrorContains(t, err, "4 fields")
}
