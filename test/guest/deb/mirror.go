package deb

import (
	"context"
	"fmt"
	"strings"
)

// Mirror is the address from which the machine's apt takes a Debian release.
func Mirror(ctx context.Context, release string) (string, error) {
	cmd := Command(ctx, "apt-get", "indextargets", "--format", "$(LABEL) $(RELEASE) $(REPO_URI)", "Created-By: Packages")
	out, err := Run(cmd)
	if err != nil {
		return "", fmt.Errorf("find the mirror of Debian %s: %w", release, err)
	}
	for line := range strings.Lines(string(out)) {
		if uri, ok := strings.CutPrefix(line, "Debian "+release+" "); ok {
			return strings.TrimSuffix(strings.TrimSpace(uri), "/"), nil
		}
	}
	return "", fmt.Errorf("apt's sources name no mirror of Debian %s", release)
}
