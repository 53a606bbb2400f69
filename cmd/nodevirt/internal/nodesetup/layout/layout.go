// Package layout finds out how Kubernetes runs on a node: by kubeadm, k3s or k0s.
//
// It owns where each distribution keeps containerd's socket and the kubelet's kubeconfig, and which
// file gives the kubelet another CRI socket. It reads files below a root folder, and writes none.
package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/nodesetup/rooted"
)

// Layout is how Kubernetes runs on a node. Paths are those of the node.
type Layout struct {
	// Name is kubeadm, k3s or k0s.
	Name string
	// Unit is the systemd unit that runs the kubelet.
	Unit string
	// Containerd is the path of containerd's socket, Kubeconfig that of the kubelet's kubeconfig.
	Containerd, Kubeconfig string

	edit func(root *os.Root, endpoint string) (Edit, error)
	// endpoint returns the kubelet's present CRI endpoint.
	endpoint func(root *os.Root) (string, error)
}

// Edit is a file with new text.
type Edit struct {
	// Path is relative to the root folder.
	Path string
	Text string
}

// errAbsent: this distribution does not run on the node.
var errAbsent = errors.New("not installed")

// Detect returns the layout of the node whose root folder is given.
func Detect(root *os.Root) (Layout, error) {
	for _, detect := range []func(*os.Root) (Layout, error){k3s, k0s, kubeadm} {
		l, err := detect(root)
		if !errors.Is(err, errAbsent) {
			return l, err
		}
	}
	return Layout{}, errors.New("detect Kubernetes: found neither kubeadm's kubelet.service, nor k3s, nor k0s; " +
		"join the node to a cluster first, or set it up as docs/node.md describes")
}

// Kubelet returns the change that makes the kubelet use the CRI socket at a path.
func (l Layout) Kubelet(root *os.Root, socket string) (Edit, error) {
	e, err := l.edit(root, "unix://"+socket)
	if err != nil {
		return Edit{}, fmt.Errorf("change the kubelet's CRI socket (%s): %w", l.Name, err)
	}
	return e, nil
}

// unitFolders are where systemd looks for units, the strongest first.
func unitFolders() []string {
	return []string{"etc/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"}
}

// unit returns a unit's path and text; errAbsent if there is none.
func unit(root *os.Root, name string) (file, text string, err error) {
	for _, dir := range unitFolders() {
		file = path.Join(dir, name)
		text, err := read(root, file)
		if err != nil || text != "" {
			return file, text, err
		}
	}
	return "", "", errAbsent
}

// read returns a file's text, empty if there is no file.
func read(root *os.Root, name string) (string, error) {
	text, err := rooted.ReadFile(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read /%s: %w", name, err)
	}
	return string(text), nil
}

// command returns the last command of a unit, its lines joined.
func command(unit string) string {
	last := ""
	for line := range strings.Lines(strings.ReplaceAll(unit, "\\\n", " ")) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "ExecStart="); ok {
			last = strings.TrimSpace(value)
		}
	}
	return last
}

// refuse returns an error if the text has one of the options, which change what this package knows.
func refuse(where, text string, options ...string) error {
	for _, o := range options {
		if strings.Contains(text, o) {
			return fmt.Errorf("%s sets %s: unsupported; set up the node as docs/node.md describes", where, o)
		}
	}
	return nil
}
