package layout

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

const k0sArgs = "--kubelet-extra-args"

// k0s detects a worker, or a controller that is a worker too. k0s supervises containerd and the
// kubelet. Its option --cri-socket would end that containerd, so the kubelet alone gets another
// socket, by an argument in a drop-in of the unit.
func k0s(root *os.Root) (Layout, error) {
	name := "k0sworker.service"
	_, text, err := unit(root, name)
	if errors.Is(err, errAbsent) {
		name = "k0scontroller.service"
		_, text, err = unit(root, name)
		if err == nil && !strings.Contains(text, "--enable-worker") && !strings.Contains(text, "--single") {
			return Layout{}, errors.New("k0scontroller.service runs no kubelet: run this command on a worker")
		}
	}
	if err != nil {
		return Layout{}, err
	}
	run := command(text)
	if err := refuse(name, run, "--cri-socket", "--data-dir", "--kubelet-root-dir", endpointFlag); err != nil {
		return Layout{}, err
	}
	const containerd = "/run/k0s/containerd.sock"
	file := "etc/systemd/system/" + name + ".d/nodevirt.conf"
	return Layout{
		Name: "k0s", Unit: name,
		Containerd: containerd, Kubeconfig: "/var/lib/k0s/kubelet.conf",
		endpoint: func(root *os.Root) (string, error) {
			text, err := read(root, file)
			return given(text, "unix://"+containerd), err
		},
		edit: func(_ *os.Root, endpoint string) (Edit, error) {
			run, err := addK0sArgument(run, "--container-runtime-endpoint="+endpoint)
			if err != nil {
				return Edit{}, fmt.Errorf("%s: %w", name, err)
			}
			return Edit{file,
				"# Written by \"nodevirt node install\". \"nodevirt node uninstall\" removes it.\n" +
					"[Service]\nExecStart=\nExecStart=" + run + "\n"}, nil
		},
	}, nil
}

// addK0sArgument adds an argument of the kubelet to the command of k0s' unit. systemd reads \x20 as
// a space within an argument.
func addK0sArgument(run, argument string) (string, error) {
	if run == "" {
		return "", errors.New("the unit has no ExecStart")
	}
	if !strings.Contains(run, k0sArgs) {
		return run + " " + k0sArgs + "=" + argument, nil
	}
	words := strings.Fields(run)
	for i, word := range words {
		value, ok := strings.CutPrefix(word, k0sArgs+"=")
		if ok && value != "" && !strings.ContainsAny(run, "\"'") {
			words[i] = word + `\x20` + argument
			return strings.Join(words, " "), nil
		}
	}
	return "", fmt.Errorf(`want %s=VALUE without quotes, with \x20 in place of spaces`, k0sArgs)
}
