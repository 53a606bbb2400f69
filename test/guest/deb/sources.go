package deb

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Source is a place from which the machine's apt takes packages of Debian itself.
type Source struct {
	Release string // such as bookworm-security
	URI     string
}

// Sources are those of a release of Debian's main section, the release itself first.
func Sources(ctx context.Context, release string) ([]Source, error) {
	const format = "$(ORIGIN) $(COMPONENT) $(RELEASE) $(REPO_URI)"
	out, err := Run(Command(ctx, "apt-get", "indextargets", "--format", format, "Created-By: Packages"))
	if err != nil {
		return nil, fmt.Errorf("find the mirror of Debian %s: %w", release, err)
	}
	found := parseSources(string(out), release)
	if len(found) == 0 || found[0].Release != release {
		return nil, fmt.Errorf("apt's sources name no mirror of Debian %s", release)
	}
	return found, nil
}

func parseSources(text, release string) []Source {
	var found []Source
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 4 || f[0] != "Debian" || f[1] != "main" {
			continue
		}
		if f[2] == release || strings.HasPrefix(f[2], release+"-") {
			found = append(found, Source{Release: f[2], URI: strings.TrimSuffix(f[3], "/")})
		}
	}
	slices.SortFunc(found, func(a, b Source) int { return strings.Compare(a.Release, b.Release) })
	return slices.Compact(found)
}

// SourcesList is the text of a sources.list(5).
func SourcesList(sources []Source) string {
	var text strings.Builder
	for _, s := range sources {
		fmt.Fprintf(&text, "deb %s %s main\n", s.URI, s.Release)
	}
	return text.String()
}
