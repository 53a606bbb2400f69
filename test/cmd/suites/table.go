package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// suite is a row of suites.tsv.
type suite struct {
	name string
	// minutes is about how long it takes on a machine with two processors.
	minutes int
	// needs says why the change's run leaves it out; "-" for nothing.
	needs string
	// command is a program and its arguments, without quotes.
	command []string
	// paths are the files and folders, with a final "/", whose changes it covers.
	paths  []string
	covers string
}

// pass is a row of passed.tsv: the last time that a suite passed.
type pass struct {
	date, commit string
	minutes      int
}

// board is the suites and their last passes.
type board struct {
	root   string
	suites []suite
	passed map[string]pass
}

// The tracked files, below the checkout's root.
const (
	tableFile = "test/cmd/suites/suites.tsv"
	passFile  = "test/cmd/suites/passed.tsv"
	pageFile  = "docs/suites.md"
)

// open reads the table and the record of a checkout.
func open(root string) (*board, error) {
	b := &board{root: root, passed: map[string]pass{}}
	rows, err := readRows(filepath.Join(root, tableFile), 6)
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		minutes, err := strconv.Atoi(r[1])
		if err != nil {
			return nil, fmt.Errorf("read %s: minutes of %s: %w", tableFile, r[0], err)
		}
		if b.find(r[0]) != nil {
			return nil, fmt.Errorf("read %s: two rows are named %s", tableFile, r[0])
		}
		b.suites = append(b.suites, suite{
			name: r[0], minutes: minutes, needs: r[2], command: strings.Fields(r[3]), paths: strings.Fields(r[4]), covers: r[5],
		})
	}
	if rows, err = readRows(filepath.Join(root, passFile), 4); err != nil {
		return nil, err
	}
	for _, r := range rows {
		minutes, err := strconv.Atoi(r[3])
		if err != nil {
			return nil, fmt.Errorf("read %s: minutes of %s: %w", passFile, r[0], err)
		}
		if b.find(r[0]) == nil {
			return nil, fmt.Errorf("read %s: %s is no suite of %s", passFile, r[0], tableFile)
		}
		b.passed[r[0]] = pass{date: r[1], commit: r[2], minutes: minutes}
	}
	return b, nil
}

// readRows returns the fields of a file's rows, which tabs separate, without comments.
func readRows(file string, fields int) (rows [][]string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		row := strings.Split(line, "\t")
		if len(row) != fields || slices.Contains(row, "") {
			return nil, fmt.Errorf("read %s: row %q has not %d fields", file, line, fields)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// find returns a suite, or nil if none has the name.
func (b *board) find(name string) *suite {
	for i := range b.suites {
		if b.suites[i].name == name {
			return &b.suites[i]
		}
	}
	return nil
}

// record notes that a suite passed, in the record and on the page.
func (b *board) record(name string, p pass) error {
	b.passed[name] = p
	var text strings.Builder
	text.WriteString("# suite, date, commit, minutes: the last time that each suite passed. bin/suites run writes it.\n")
	for _, s := range b.suites {
		if p, ok := b.passed[s.name]; ok {
			fmt.Fprintf(&text, "%s\t%s\t%s\t%d\n", s.name, p.date, p.commit, p.minutes)
		}
	}
	if err := os.WriteFile(filepath.Join(b.root, passFile), []byte(text.String()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.root, pageFile), []byte(b.page()), 0o644)
}
