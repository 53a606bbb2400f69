package bundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// codename is the release of Debian that the packages are from.
	codename = "trixie"

	// keyring has the keys that sign the archives.
	keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
)

// Resolve returns the packages that an architecture's bundle needs, in the versions that the archives have now. apt
// chooses them, from lists whose signatures it checked. The machine's own lists and packages don't matter to it.
func (l Lists) Resolve(ctx context.Context, a Archives, architecture string) (_ []Package, err error) {
	dir, err := os.MkdirTemp("", "nodevirt-bundle-")
	if err != nil {
		return nil, fmt.Errorf("resolve packages: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	asked, err := l.requests(architecture)
	if err != nil {
		return nil, err
	}
	omitted, err := l.without()
	if err != nil {
		return nil, err
	}
	r := resolver{archives: a, architecture: architecture, dir: dir}
	if err := r.prepare(ctx, omitted); err != nil {
		return nil, fmt.Errorf("resolve packages of %s: %w", architecture, err)
	}
	return r.resolve(ctx, asked)
}

// resolver runs apt with its state in a folder.
type resolver struct {
	archives          Archives
	architecture, dir string
}

// prepare downloads the package lists. To apt, the packages that the bundle leaves out are installed.
func (r resolver) prepare(ctx context.Context, omitted []string) error {
	for _, folder := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(r.dir, folder), 0o755); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"sources.list": r.sources(), "status": status(r.architecture, omitted), "apt.conf": r.config(),
	} {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	_, err := r.apt(ctx, "-q", "update", "-o", "APT::Update::Error-Mode=any")
	return err
}

func (r resolver) sources() string {
	var text strings.Builder
	for _, s := range []struct{ uri, suite string }{
		{r.archives.Main, codename}, {r.archives.Main, codename + "-updates"}, {r.archives.Security, codename + "-security"},
	} {
		fmt.Fprintf(&text, "deb [signed-by=%s] %s %s main\n", keyring, s.uri, s.suite)
	}
	return text.String()
}

func (r resolver) config() string {
	in := func(name string) string { return filepath.Join(r.dir, name) }
	var text strings.Builder
	for _, option := range [][2]string{
		{"APT::Architecture", r.architecture},
		{"APT::Architectures", r.architecture},
		{"APT::Sandbox::User", "root"},
		{"APT::Install-Recommends", "false"},
		{"Acquire::ForceHash", "SHA256"},
		{"Acquire::Languages", "none"},
		{"Dir::Etc::SourceList", in("sources.list")},
		{"Dir::Etc::SourceParts", "/dev/null"},
		{"Dir::Etc::PreferencesParts", "/dev/null"},
		{"Dir::State::Lists", in("lists")},
		{"Dir::State::status", in("status")},
		{"Dir::Cache", in("cache")},
	} {
		fmt.Fprintf(&text, "%s %q;\n", option[0], option[1])
	}
	return text.String()
}

// status returns a list of installed packages for dpkg.
func status(architecture string, names []string) string {
	var text strings.Builder
	for _, name := range names {
		fmt.Fprintf(&text, "Package: %s\nStatus: install ok installed\nArchitecture: %s\nMulti-Arch: allowed\n"+
			"Version: 9999:0\nMaintainer: nodevirt\nDescription: left out\n\n", name, architecture)
	}
	return text.String()
}

func (r resolver) apt(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "APT_CONFIG="+filepath.Join(r.dir, "apt.conf"))
	return run(cmd)
}

// resolve puts what was asked for into its layers, and what it depends on into that of the libraries, or into that of
// emulated guests if nothing else needs it.
func (r resolver) resolve(ctx context.Context, asked []request) ([]Package, error) {
	layers := map[string]string{}
	var all, rest []string
	for _, q := range asked {
		layers[q.name] = q.layer
		all = append(all, q.name)
		if q.layer != aarch64 {
			rest = append(rest, q.name)
		}
	}
	packages, err := r.closure(ctx, all)
	if err != nil {
		return nil, err
	}
	inner, err := r.closure(ctx, rest)
	if err != nil {
		return nil, err
	}
	for _, p := range inner {
		if layers[p.Name] == "" {
			layers[p.Name] = libraries
		}
	}
	for i := range packages {
		packages[i].Layer = cmp.Or(layers[packages[i].Name], aarch64)
	}
	order := []string{libraries, node, aarch64}
	slices.SortFunc(packages, func(x, y Package) int {
		return cmp.Or(cmp.Compare(slices.Index(order, x.Layer), slices.Index(order, y.Layer)), cmp.Compare(x.Name, y.Name))
	})
	return packages, nil
}

// closure returns the packages and all that they depend on.
func (r resolver) closure(ctx context.Context, names []string) ([]Package, error) {
	out, err := r.apt(ctx, append([]string{"install", "-qq", "--print-uris"}, names...)...)
	if err != nil {
		return nil, err
	}
	var all []Package
	for line := range strings.Lines(string(out)) {
		p, err := r.parse(line)
		if err != nil {
			return nil, fmt.Errorf("apt's line %q: %w", strings.TrimSpace(line), err)
		}
		all = append(all, p)
	}
	return all, nil
}

// parse reads a line of "apt-get --print-uris": the address in quotes, the file's name, its size, its checksum.
func (r resolver) parse(line string) (p Package, err error) {
	f := strings.Fields(line)
	if len(f) != 4 {
		return p, fmt.Errorf("want 4 fields, got %d", len(f))
	}
	if p.Archive, p.Path, err = r.archives.archived(strings.Trim(f[0], "'")); err != nil {
		return p, err
	}
	file, err := url.PathUnescape(f[1])
	if err != nil {
		return p, err
	}
	parts := strings.Split(strings.TrimSuffix(file, ".deb"), "_")
	sum, ok := strings.CutPrefix(f[3], "SHA256:")
	if len(parts) != 3 || !ok {
		return p, errors.New("want NAME_VERSION_ARCHITECTURE.deb and a SHA-256")
	}
	p.Name, p.Version, p.SHA256 = parts[0], parts[1], sum
	return p, nil
}
