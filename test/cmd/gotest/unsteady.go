package main

import (
	_ "embed"
	"fmt"
	"strings"
)

// listFile has the list, below the checkout's root.
const listFile = "test/cmd/gotest/unsteady.tsv"

//go:embed unsteady.tsv
var list string

// unsteady is a test that has passed at the second try only. It stays on the list until it is repaired.
type unsteady struct {
	pkg, test   string // pkg is below the module
	since, seen string // the date, and how it failed
}

// readUnsteady reads a list: a row for each test, with tabs between its fields, and comments.
func readUnsteady(text string) (all []unsteady, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) != 4 {
			return nil, fmt.Errorf("read %s: row %q does not have 4 fields", listFile, line)
		}
		all = append(all, unsteady{pkg: f[0], test: f[1], since: f[2], seen: f[3]})
	}
	return all, nil
}
