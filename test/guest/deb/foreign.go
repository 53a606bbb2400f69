package deb

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nodevirt/nodevirt/test/guest/cache"
)

// Foreign is Resolve for packages of another architecture than the machine's. It keeps that
// architecture's package lists in the folder root, and refreshes them once a day: the machine's apt and
// dpkg do not learn of the architecture.
func Foreign(ctx context.Context, root, architecture string, names ...string) ([]Package, error) {
	today := time.Now().UTC().Format("20060102")
	dir, err := cache.Dir(ctx, root, "apt-"+architecture, today, func(tmp string) error {
		for _, folder := range []string{"lists/partial", "cache/archives/partial"} {
			if err := os.MkdirAll(filepath.Join(tmp, folder), 0o755); err != nil {
				return err
			}
		}
		_, err := Run(Command(ctx, "apt-get", append(foreignOptions(architecture, tmp), "-q", "update")...))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the package lists of %s: %w", architecture, err)
	}
	options := foreignOptions(architecture, dir)
	found, err := show(ctx, dir, options, names)
	for i := range found {
		found[i].options = options
	}
	return found, err
}

func foreignOptions(architecture, dir string) (all []string) {
	for _, option := range []string{
		"APT::Architecture=" + architecture, "APT::Architectures=" + architecture, "APT::Sandbox::User=root",
		"Dir::State::Lists=" + filepath.Join(dir, "lists"), "Dir::State::status=/dev/null", "Dir::Cache=" + filepath.Join(dir, "cache"),
	} {
		all = append(all, "-o", option)
	}
	return all
}
