package hostdevice

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// given is what the kubelet handed to a container.
type given struct {
	// env has the variables of device plug-ins. A container's author can set them too, so
	// they only choose between nodes.
	env map[string]string
	// nodes are paths of device nodes on the node. The kubelet and the CDI files of root
	// choose them.
	nodes map[string]bool
	// files are paths on the node by paths in the container.
	files map[string]string
}

// given reads a container's config, and the CDI devices that it names. As the kubelet
// lists plug-ins' variables before the author's, the first of a name counts.
func (n Node) given(config *runtimeapi.ContainerConfig) (given, error) {
	g := given{env: map[string]string{}, nodes: map[string]bool{}, files: map[string]string{}}
	for _, e := range config.GetEnvs() {
		g.set(e.GetKey(), string(e.GetValue()))
	}
	for _, d := range config.GetDevices() {
		g.nodes[d.GetHostPath()] = true // the path in the container is the author's to choose
	}
	names, err := cdiNames(config)
	if err != nil || len(names) == 0 {
		return g, err
	}
	return g, n.addCDI(g, names)
}

func (g given) set(name, value string) {
	if _, already := g.env[name]; !already {
		g.env[name] = value
	}
}

// cdiNames returns the names of a container's CDI devices: a kubelet has a field for them,
// and an older one annotations of the container, which pods' authors do not set.
func cdiNames(config *runtimeapi.ContainerConfig) ([]string, error) {
	var names []string
	for _, d := range config.GetCDIDevices() {
		names = append(names, d.GetName())
	}
	_, older, err := cdi.ParseAnnotations(config.GetAnnotations())
	if err != nil {
		return nil, fmt.Errorf("read the container's CDI devices: %w", err)
	}
	return append(names, older...), nil
}

// addCDI adds what the node's CDI files say of devices.
func (n Node) addCDI(g given, names []string) error {
	var dirs []string
	for _, dir := range cdi.DefaultSpecDirs {
		dirs = append(dirs, filepath.Join(n.Root, dir))
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return fmt.Errorf("read the node's CDI files: %w", err)
	}
	var errs []error
	for _, name := range names {
		device := cache.GetDevice(name)
		if device == nil {
			errs = append(errs, fmt.Errorf("CDI device %q: no file in %s describes it; see whether its driver runs on this node",
				name, strings.Join(cdi.DefaultSpecDirs, " or ")))
			continue
		}
		for _, edits := range []*cdi.ContainerEdits{{ContainerEdits: &device.GetSpec().ContainerEdits}, {ContainerEdits: &device.ContainerEdits}} {
			g.add(edits)
		}
	}
	return errors.Join(errs...)
}

func (g given) add(edits *cdi.ContainerEdits) {
	for _, e := range edits.Env {
		name, value, _ := strings.Cut(e, "=")
		g.set(name, value)
	}
	for _, d := range edits.DeviceNodes {
		host := d.HostPath
		if host == "" {
			host = d.Path
		}
		g.nodes[host] = true
	}
	for _, m := range edits.Mounts {
		g.files[filepath.Clean(m.ContainerPath)] = m.HostPath
	}
}
