package bundle

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// Archives are the addresses of Debian's archives on a mirror, without a slash at the end.
type Archives struct{ Main, Security string }

// MachineArchives returns the archives that the machine's apt uses.
func MachineArchives(ctx context.Context) (Archives, error) {
	const format = "$(ORIGIN) $(COMPONENT) $(RELEASE) $(REPO_URI)"
	out, err := run(exec.CommandContext(ctx, "apt-get", "indextargets", "--format", format, "Created-By: Packages"))
	if err != nil {
		return Archives{}, fmt.Errorf("find a mirror of Debian: %w", err)
	}
	a := parseArchives(string(out))
	if a.Main == "" || a.Security == "" {
		return Archives{}, errors.New("find a mirror of Debian: apt's sources don't name both archives, " +
			"debian and debian-security; name them with -archive and -security-archive")
	}
	return a, nil
}

func parseArchives(text string) (a Archives) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 4 || f[0] != "Debian" || f[1] != "main" {
			continue
		}
		uri := strings.TrimSuffix(f[3], "/")
		switch {
		case strings.HasSuffix(f[2], "-security"):
			a.Security = uri
		case !strings.Contains(f[2], "-"):
			a.Main = uri
		}
	}
	return a
}

// address returns where a package's file is.
func (a Archives) address(p Package) string {
	if p.Archive == "security" {
		return a.Security + "/" + p.Path
	}
	return a.Main + "/" + p.Path
}

// archived returns the archive and the path of an address.
func (a Archives) archived(uri string) (archive, path string, err error) {
	if path, ok := strings.CutPrefix(uri, a.Security+"/"); ok {
		return "security", path, nil
	}
	if path, ok := strings.CutPrefix(uri, a.Main+"/"); ok {
		return "main", path, nil
	}
	return "", "", fmt.Errorf("%s is in none of the archives", uri)
}

// run runs a command in the C locale and returns its output.
func run(cmd *exec.Cmd) ([]byte, error) {
	cmd.Env = append(cmd.Environ(), "LC_ALL=C")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd.Args[0], err, strings.TrimSpace(errs.String()))
	}
	return out, nil
}
