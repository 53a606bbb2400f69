package layout

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/nodesetup/rooted"
)

const (
	endpointFlag = "--container-runtime-endpoint"
	// defaultEndpoint is the kubelet's own.
	defaultEndpoint = "unix:///run/containerd/containerd.sock"
)

// Runtime returns the CRI socket that the kubelet uses when it starts next: containerd's, or the shim's if the node
// is set up already.
func (l Layout) Runtime(root *os.Root) (socket string, err error) {
	endpoint, err := l.endpoint(root)
	if err != nil {
		return "", fmt.Errorf("find the kubelet's CRI socket (%s): %w", l.Name, err)
	}
	socket, _ = strings.CutPrefix(endpoint, "unix://")
	if !path.IsAbs(socket) {
		return "", fmt.Errorf("find the kubelet's CRI socket (%s): %q is not the path of a socket; set %s=unix:///PATH",
			l.Name, endpoint, endpointFlag)
	}
	return CleanSocket(socket), nil
}

// CleanSocket returns the one name of a socket that has several: /var/run is a link to /run.
func CleanSocket(socket string) string {
	socket = path.Clean(socket)
	if rest, is := strings.CutPrefix(socket, "/var/run/"); is {
		return "/run/" + rest
	}
	return socket
}

var endpointArgument = regexp.MustCompile(endpointFlag[2:] + `=([^\s"'\\]+)`)

// given returns the endpoint in a file that only [Layout.Kubelet] writes, or the distribution's if there is none.
func given(text, distributions string) string {
	if m := endpointArgument.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return distributions
}

// kubeletEndpoint returns the endpoint of kubelet.service. As for the kubelet, the last argument wins over those
// before, and over the files.
func kubeletEndpoint(root *os.Root) (string, error) {
	args, err := kubeletArguments(root)
	if err != nil {
		return "", err
	}
	if endpoint := argument(args, endpointFlag); endpoint != "" {
		return endpoint, nil
	}
	files := []string{argument(args, "--config")}
	if dir := argument(args, "--config-dir"); dir != "" {
		more, err := list(root, relative(dir), ".conf")
		if err != nil {
			return "", err
		}
		files = append(files, more...)
	}
	endpoint := ""
	for _, file := range files {
		if file == "" {
			continue
		}
		text, err := read(root, relative(file))
		if err != nil {
			return "", err
		}
		var config struct {
			ContainerRuntimeEndpoint string `json:"containerRuntimeEndpoint"`
		}
		if err := yaml.Unmarshal([]byte(text), &config); err != nil {
			return "", fmt.Errorf("read /%s: %w", relative(file), err)
		}
		endpoint = cmp.Or(config.ContainerRuntimeEndpoint, endpoint)
	}
	return cmp.Or(endpoint, defaultEndpoint), nil
}

// kubeletArguments returns the words of the command of kubelet.service, with the variables of its environment.
func kubeletArguments(root *os.Root) ([]string, error) {
	text, environment, err := kubeletEnvironment(root)
	if err != nil {
		return nil, err
	}
	return words(os.Expand(command(text), func(name string) string { return environment[name] })), nil
}

// kubeletVariable returns a variable of kubelet.service's environment.
func kubeletVariable(root *os.Root, name string) (string, error) {
	_, environment, err := kubeletEnvironment(root)
	return environment[name], err
}

// kubeletEnvironment returns the text of kubelet.service with its drop-ins, and its environment.
func kubeletEnvironment(root *os.Root) (text string, environment map[string]string, err error) {
	if text, err = withDropIns(root, "kubelet.service"); err != nil {
		return "", nil, err
	}
	environment = map[string]string{}
	fromFiles := map[string]string{}
	for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
		line = strings.TrimSpace(line)
		if value, is := strings.CutPrefix(line, "Environment="); is {
			for _, word := range words(value) {
				assign(environment, word)
			}
		}
		file, is := strings.CutPrefix(line, "EnvironmentFile=")
		if file = strings.TrimPrefix(strings.TrimSpace(file), "-"); !is || !path.IsAbs(file) {
			continue
		}
		text, err := read(root, relative(file))
		if err != nil {
			return "", nil, err
		}
		for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
			if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ";") {
				assign(fromFiles, line)
			}
		}
	}
	maps.Copy(environment, fromFiles) // as in systemd, files win over Environment=
	return text, environment, nil
}

// withDropIns returns a unit's text, and those of its drop-ins in systemd's order. Of several files of one name the one in the
// strongest folder counts.
func withDropIns(root *os.Root, name string) (string, error) {
	_, text, err := unit(root, name)
	if err != nil {
		return "", err
	}
	files := map[string]string{}
	for _, dir := range slices.Backward(unitFolders()) {
		all, err := list(root, path.Join(dir, name+".d"), ".conf")
		if err != nil {
			return "", err
		}
		for _, file := range all {
			files[path.Base(file)] = file
		}
	}
	for _, base := range slices.Sorted(maps.Keys(files)) {
		part, err := read(root, files[base])
		if err != nil {
			return "", err
		}
		text += "\n" + part
	}
	return text, nil
}

// list returns the sorted paths of a folder's files with an extension; none if there is no such folder.
func list(root *os.Root, dir, extension string) ([]string, error) {
	at, err := rooted.Resolve(root, dir)
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(root.FS(), at)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list /%s: %w", dir, err)
	}
	var all []string
	for _, e := range entries {
		if path.Ext(e.Name()) == extension {
			all = append(all, path.Join(dir, e.Name()))
		}
	}
	return all, nil
}

// assign adds NAME=VALUE, whose value may be in quotes, to variables.
func assign(variables map[string]string, text string) {
	if name, value, is := strings.Cut(text, "="); is {
		variables[strings.TrimSpace(name)] = strings.Join(words(value), " ")
	}
}

// words returns the words of a line of a unit or of an environment file. A word, or a part of one, may be in quotes.
func words(line string) []string {
	var all []string
	var word strings.Builder
	quote, open := rune(0), false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, open = r, true
		case quote == 0 && (r == ' ' || r == '\t'):
			if open {
				all = append(all, word.String())
			}
			word.Reset()
			open = false
		default:
			word.WriteRune(r)
			open = true
		}
	}
	if open {
		all = append(all, word.String())
	}
	return all
}

// argument returns the last value of a flag, as --flag=VALUE or --flag VALUE.
func argument(args []string, flag string) (value string) {
	for i, arg := range args {
		if v, is := strings.CutPrefix(arg, flag+"="); is {
			value = v
		} else if arg == flag && i+1 < len(args) {
			value = args[i+1]
		}
	}
	return value
}

func relative(file string) string { return strings.TrimPrefix(path.Clean(file), "/") }
