package layout

import (
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
)

// argsVariable holds the last arguments of a kubelet that kubeadm set up. They override both
// kubeadm's and those of the kubelet's configuration file, which kubeadm may write again.
const argsVariable = "KUBELET_EXTRA_ARGS"

var environmentFile = regexp.MustCompile(`(?m)^EnvironmentFile=-?(/\S+)$`)

// kubeadm detects the packages of kubeadm and kubelet: their unit has a drop-in that reads kubeadm's
// arguments, then the administrator's from /etc/default/kubelet or /etc/sysconfig/kubelet.
func kubeadm(root *os.Root) (Layout, error) {
	if _, _, err := unit(root, "kubelet.service"); err != nil {
		return Layout{}, err
	}
	_, dropIn, err := unit(root, "kubelet.service.d/10-kubeadm.conf")
	if errors.Is(err, errAbsent) || err == nil && !strings.Contains(command(dropIn), "$"+argsVariable) {
		return Layout{}, errors.New("kubelet.service is not set up by kubeadm: unsupported; set up the node as docs/node.md describes")
	}
	if err != nil {
		return Layout{}, err
	}
	files := environmentFile.FindAllStringSubmatch(dropIn, -1)
	if len(files) == 0 {
		return Layout{}, fmt.Errorf("kubelet.service's drop-in reads no file with %s; set up the node as docs/node.md describes", argsVariable)
	}
	file := strings.TrimPrefix(path.Clean(files[len(files)-1][1]), "/")
	return Layout{
		Name: "kubeadm", Unit: "kubelet.service",
		Containerd: "/run/containerd/containerd.sock", Kubeconfig: "/etc/kubernetes/kubelet.conf",
		endpoint: kubeletEndpoint,
		edit: func(root *os.Root, endpoint string) (Edit, error) {
			text, err := read(root, file)
			if err != nil {
				return Edit{}, err
			}
			inherited, err := kubeletVariable(root, argsVariable)
			if err != nil {
				return Edit{}, err
			}
			text, err = addArgument(text, inherited, "--container-runtime-endpoint="+endpoint)
			if err != nil {
				return Edit{}, fmt.Errorf("/%s: %w", file, err)
			}
			return Edit{file, text}, nil
		},
	}, nil
}

// addArgument adds an argument to the variable in an environment file of systemd. The last argument
// of a name wins. The file replaces inherited, the value that the variable has from elsewhere, such as a drop-in.
func addArgument(text, inherited, argument string) (string, error) {
	lines := strings.SplitAfter(text, "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		value, ok := strings.CutPrefix(strings.TrimSpace(lines[i]), argsVariable+"=")
		if !ok {
			continue
		}
		if len(value) >= 2 && (value[0] == '"' || value[0] == '\'') && value[len(value)-1] == value[0] {
			value = value[1 : len(value)-1]
		}
		if strings.ContainsAny(value, "\"'\\") {
			return "", fmt.Errorf("%s has quotes or \"\\\" in its value; write it on one line, in one pair of quotes", argsVariable)
		}
		lines[i] = variable(strings.TrimSpace(value + " " + argument))
		return strings.Join(lines, ""), nil
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if strings.ContainsAny(inherited, "\"'\\") {
		return "", fmt.Errorf("%s, from a drop-in of kubelet.service, has quotes or \"\\\" in its value; set it without them", argsVariable)
	}
	return text + variable(strings.TrimSpace(inherited+" "+argument)), nil
}

func variable(value string) string { return argsVariable + "=\"" + value + "\"\n" }
