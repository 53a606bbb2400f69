// Package release makes the texts of a release: its notes, and the bill of materials of its programs.
//
// It owns what these texts contain. It leaves building the programs to the Makefile, and the other
// files of a release to deploy/release/build.
package release

import (
	"fmt"
	"regexp"
	"strings"
)

// semantic matches a tag such as v1.2.3 or v1.2.3-rc.1. Its groups are the version and the pre-release.
var semantic = regexp.MustCompile(`^v(\d+\.\d+\.\d+)(-[0-9A-Za-z.]+)?$`)

// Notes returns the changelog's section of the version, a tag such as v1.2.3, without its heading. A
// pre-release such as v1.2.3-rc.1 has the section of unreleased changes.
func Notes(changelog, version string) (string, error) {
	parts := semantic.FindStringSubmatch(version)
	if parts == nil {
		return "", fmt.Errorf("release notes of version %q: want a version such as v1.2.3", version)
	}
	name := parts[1]
	if parts[2] != "" {
		name = "Unreleased"
	}
	var notes strings.Builder
	found := false
	for line := range strings.Lines(changelog) {
		if strings.HasPrefix(line, "## ") {
			if found {
				break
			}
			found = strings.HasPrefix(line, "## ["+name+"]")
			continue
		}
		if found {
			notes.WriteString(line)
		}
	}
	text := strings.TrimSpace(notes.String())
	switch {
	case !found:
		return "", fmt.Errorf("release notes of %s: the changelog has no section %q; rename its section Unreleased", version, "## ["+name+"]")
	case text == "":
		return "", fmt.Errorf("release notes of %s: section %q is empty; describe the changes", version, name)
	}
	return text + "\n", nil
}
