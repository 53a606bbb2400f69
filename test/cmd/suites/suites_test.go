package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"
)

// checkout makes a repository with a table of suites, and returns its root and a function that commits a
// change of files.
func checkout(t *testing.T) (root string, commit func(files ...string)) {
	t.Helper()
	// The repository has nothing of the one that the test is in, nor of the user.
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"} {
		t.Setenv(name, "")
		assert.NilError(t, os.Unsetenv(name))
	}
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_CONFIG_SYSTEM", os.DevNull)
	root = t.TempDir()
	do := func(args ...string) {
		t.Helper()
		_, err := git(t.Context(), root, append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		assert.NilError(t, err)
	}
	write := func(name, text string) {
		t.Helper()
		assert.NilError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
		assert.NilError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
	}
	table, err := os.ReadFile("testdata/suites.tsv")
	assert.NilError(t, err)
	write(tableFile, string(table))
	write(passFile, "# none\n")
	write(pageFile, "")
	do("init", "--quiet")
	n := 0
	commit = func(files ...string) {
		t.Helper()
		for _, f := range files {
			n++
			write(f, strings.Repeat("x", n))
		}
		do("add", "--all")
		do("commit", "--quiet", "--message", "change")
	}
	commit("README.md")
	return root, commit
}

// due returns the names of the suites that are due, and of those of them that a change runs.
func due(t *testing.T, root string, minutes int) (all, run string) {
	t.Helper()
	b, err := open(root)
	assert.NilError(t, err)
	states, err := b.states(t.Context())
	assert.NilError(t, err)
	for _, s := range states {
		if s.due() {
			all += s.name + " "
		}
	}
	for _, s := range fitting(states, minutes) {
		run += s.name + " "
	}
	return all, run
}

// passes runs suites, which take a minute each.
func passes(t *testing.T, root, day string, names ...string) error {
	t.Helper()
	b, err := open(root)
	assert.NilError(t, err)
	at, err := time.Parse(time.DateOnly, day)
	assert.NilError(t, err)
	return b.runNamed(t.Context(), names, new(bytes.Buffer), func() time.Time {
		at = at.Add(time.Minute)
		return at
	})
}

// TestDue: a suite is due if it never passed, or if a file that it covers has changed since. A change runs
// those that have passed, the oldest pass first, as long as they fit.
func TestDue(t *testing.T) {
	root, commit := checkout(t)
	all, run := due(t, root, 100)
	assert.Equal(t, all, "a b long broken ")
	assert.Equal(t, run, "", "a suite without a pass on record")

	assert.NilError(t, passes(t, root, "2026-01-02", "a"))
	commit()
	assert.NilError(t, passes(t, root, "2026-01-01", "b", "long"))
	commit()
	all, _ = due(t, root, 100)
	assert.Equal(t, all, "broken ")

	commit("shim/a/doc.md", "other/x.go")
	all, _ = due(t, root, 100)
	assert.Equal(t, all, "broken ", "none covers these files")
	commit("shim/a/x.go")
	all, run = due(t, root, 100)
	assert.Equal(t, all, "a long broken ")
	assert.Equal(t, run, "a ", "one that takes too long for a change")
	commit("shim/b.go")
	_, run = due(t, root, 100)
	assert.Equal(t, run, "b a ")
	_, run = due(t, root, 1)
	assert.Equal(t, run, "b ")

	// A clone without the commit of the pass knows no difference.
	b, err := open(root)
	assert.NilError(t, err)
	assert.NilError(t, b.record("b", pass{date: "2026-01-03", commit: strings.Repeat("0", 40), minutes: 1}))
	commit()
	all, _ = due(t, root, 100)
	assert.Equal(t, all, "a b long broken ")
}

// TestRun: what passes is recorded with its commit, and what fails is not.
func TestRun(t *testing.T) {
	root, commit := checkout(t)
	assert.ErrorContains(t, passes(t, root, "2026-01-01", "broken", "a"), "suite broken: false")
	head, err := git(t.Context(), root, "rev-parse", "HEAD")
	assert.NilError(t, err)
	text, err := os.ReadFile(filepath.Join(root, passFile))
	assert.NilError(t, err)
	_, rows, _ := strings.Cut(string(text), "\n")
	assert.Equal(t, rows, "a\t2026-01-01\t"+head+"\t1\n")
	page, err := os.ReadFile(filepath.Join(root, pageFile))
	assert.NilError(t, err)
	assert.Assert(t, strings.Contains(string(page), "| a | 1 | 2026-01-01 | "+head[:8]+" |\n"), "%s", page)

	// The record itself is no change of the code.
	assert.NilError(t, passes(t, root, "2026-01-02", "b"))
	commit()
	assert.NilError(t, os.WriteFile(filepath.Join(root, "README.md"), []byte("changed"), 0o644))
	assert.ErrorContains(t, passes(t, root, "2026-01-03", "b"), "README.md")
	commit("shim/b.go")
	assert.ErrorContains(t, passes(t, root, "2026-01-03", "c"), "no suite is named c")

	b, err := open(root)
	assert.NilError(t, err)
	var out bytes.Buffer
	assert.NilError(t, b.runDue(t.Context(), 10, &out))
	assert.Assert(t, strings.Contains(out.String(), "Suite b: true"), out.String())
	b.passed["broken"] = b.passed["a"]
	b.find("broken").paths = []string{"shim/"}
	assert.ErrorContains(t, b.runDue(t.Context(), 10, &out), "suite broken: false")
}

// TestTable: the tracked table names make targets and paths of this checkout, and the page shows the
// tracked record.
func TestTable(t *testing.T) {
	root, err := filepath.Abs("../../..")
	assert.NilError(t, err)
	b, err := open(root)
	assert.NilError(t, err)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	assert.NilError(t, err)
	for _, s := range b.suites {
		if s.command[0] == "make" && !strings.Contains(string(makefile), "\n"+s.command[1]+":") {
			t.Errorf("suite %s: the Makefile has no target %s", s.name, s.command[1])
		}
		for _, p := range s.paths {
			if _, err := os.Stat(filepath.Join(root, p)); err != nil {
				t.Errorf("suite %s: %v", s.name, err)
			}
		}
	}
	golden.Assert(t, b.page(), filepath.Join(root, pageFile))
}

func TestArguments(t *testing.T) {
	for _, args := range []string{"", "run", "change", "change x", "other"} {
		if err := run(t.Context(), strings.Fields(args), new(bytes.Buffer)); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
