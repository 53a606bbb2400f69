package layout

import (
	"errors"
	"os"
	"path"
)

const (
	k3sConfig = "etc/rancher/k3s/config.yaml"
	// k3sEdit is read after k3sConfig, and after other files of its folder.
	k3sEdit = "etc/rancher/k3s/config.yaml.d/99-nodevirt.yaml"
)

// k3s detects a server or an agent of k3s. Its kubelet runs in its process, and its containerd as a
// child. k3s' own option container-runtime-endpoint would end that containerd, so the kubelet alone
// gets another socket, by an argument that overrides the kubelet's configuration file.
func k3s(root *os.Root) (Layout, error) {
	name := "k3s-agent.service"
	_, text, err := unit(root, name)
	if errors.Is(err, errAbsent) {
		name = "k3s.service"
		_, text, err = unit(root, name)
	}
	if err != nil {
		return Layout{}, err
	}
	config, err := read(root, k3sConfig)
	if err != nil {
		return Layout{}, err
	}
	files := map[string]string{name: command(text), "/" + k3sConfig: config}
	others, err := list(root, path.Dir(k3sEdit), ".yaml")
	if err != nil {
		return Layout{}, err
	}
	for _, file := range others {
		if file == k3sEdit {
			continue
		}
		if files["/"+file], err = read(root, file); err != nil {
			return Layout{}, err
		}
	}
	for where, text := range files {
		if err := refuse(where, text, "container-runtime-endpoint", "docker:", "--docker", "data-dir"); err != nil {
			return Layout{}, err
		}
	}
	const containerd = "/run/k3s/containerd/containerd.sock"
	return Layout{
		Name: "k3s", Unit: name,
		Containerd: containerd, Kubeconfig: "/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
		endpoint: func(root *os.Root) (string, error) {
			text, err := read(root, k3sEdit)
			return given(text, "unix://"+containerd), err
		},
		edit: func(_ *os.Root, endpoint string) (Edit, error) {
			return Edit{k3sEdit, "# Written by \"nodevirt node install\". \"nodevirt node uninstall\" removes it.\n" +
				"kubelet-arg+:\n- \"container-runtime-endpoint=" + endpoint + "\"\n"}, nil
		},
	}, nil
}
