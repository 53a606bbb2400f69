package main

import (
	"cmp"
	"fmt"
	"strings"
)

const head = `# Slow suites

[.ci/run](../.ci/run) runs the fast tests on each change. It also runs slow suites that have passed
before and cover files that changed since, those with the oldest pass first, as long as they fit in
the minutes that it has for them. Run the others before a release, or after a change of what they
cover:

` + "```sh" + `
make build
bin/suites due           # suites that cover changed files, and suites that never passed
bin/suites run upgrade   # runs a suite and records a pass
git commit -m "suites: record passes" docs/suites.md test/cmd/suites/passed.tsv
` + "```" + `

Each row of the [table of suites](../test/cmd/suites/suites.tsv) has a command, the paths that it
covers, and about how many minutes it takes on two processors. If a pass is on record, the minutes
below are those of that pass. Records began on 2026-11-30.

| suite | minutes | last passed | at commit |
|---|---|---|---|
`

const foot = `
## What they cover

`

// page is docs/suites.md.
func (b *board) page() string {
	var text strings.Builder
	text.WriteString(head)
	for _, s := range b.suites {
		p, ok := b.passed[s.name]
		fmt.Fprintf(&text, "| %s | %d | %s | %.8s |\n", s.name, state{suite: s, pass: p, never: !ok}.takes(), cmp.Or(p.date, "no record"), p.commit)
	}
	text.WriteString(foot)
	for _, s := range b.suites {
		fmt.Fprintf(&text, "- %s: %s.\n  `%s`\n", s.name, s.covers, strings.Join(s.command, " "))
		if s.needs != "-" {
			fmt.Fprintf(&text, "  Not in .ci/run, since it %s.\n", s.needs)
		}
	}
	return text.String()
}
