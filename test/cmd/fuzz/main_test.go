package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

func TestTargets(t *testing.T) {
	dir := t.TempDir()
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "b_test.go"), []byte("package b\n\nfunc FuzzTwo(f *testing.F) {\n}\n\nfunc FuzzOne(f *testing.F) {}\n// func FuzzNone(\n"), 0o600))
	assert.NilError(t, os.WriteFile(filepath.Join(dir, "b.go"), []byte("package b\n\nfunc FuzzNoTest() {}\n"), 0o600))
	all, err := targets(dir)
	assert.NilError(t, err)
	var names []string
	for _, found := range all {
		names = append(names, found.name)
	}
	assert.DeepEqual(t, names, []string{"FuzzOne", "FuzzTwo"})
}

func TestInputs(t *testing.T) {
	const output = `fuzz: elapsed: 3s, execs: 102 (34/sec), new interesting: 1 (total: 5)
fuzz: elapsed: 6s, execs: 20511 (6803/sec), new interesting: 2 (total: 6)
PASS`
	assert.Equal(t, inputs(output), 20511)
	assert.Equal(t, inputs("FAIL"), 0)
}

func TestReport(t *testing.T) {
	var b strings.Builder
	err := report(&b, []result{
		{target: target{"a", "FuzzGood"}, inputs: 5000, least: 5000},
		{target: target{"a", "FuzzSlow"}, inputs: 2, least: 5000},
		{target: target{"b", "FuzzBad"}, inputs: 9000, least: 5000, err: errors.New("exit status 1")},
	})
	assert.Error(t, err, "not ok: FuzzSlow, FuzzBad")
	assert.Equal(t, b.String(), `
PACKAGE  TARGET    INPUTS  RESULT
a        FuzzGood  5000    ok
a        FuzzSlow  2       too slow: fewer than 5000 inputs
b        FuzzBad   9000    failed: exit status 1
`)
}
