package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
)

// Pod is the pod config that crictl reads, with the field names of the CRI's JSON. The caller sets
// any fields; NewPod fills in what every pod of a test needs.
type Pod map[string]any

// NewPod is a pod of a name, with a new UID, in the node's cgroup, with a folder for logs.
func (n *Node) NewPod(name string) Pod { return n.NewPodOf(name, uuid.NewString()) }

// NewPodOf is NewPod with a given UID.
func (n *Node) NewPodOf(name, uid string) Pod {
	return Pod{
		"metadata":      map[string]any{"name": name, "namespace": "default", "uid": uid, "attempt": 0},
		"labels":        podLabels(name, uid),
		"hostname":      name,
		"log_directory": n.o.path(podLogs, "default_"+name+"_"+uid),
		"linux":         map[string]any{"cgroup_parent": n.CgroupParent() + "/pod" + uid},
	}
}

// podLogs is the folder of the pods' folders of logs.
const podLogs = "podlogs"

// containerLogs are the paths of the logs of all containers that the node has had: a guest's is what
// it wrote to its serial console.
func (n *Node) containerLogs() []string {
	logs, _ := filepath.Glob(n.o.path(podLogs, "*", "*.log"))
	return logs
}

// podLabels are those that the kubelet gives to pods and to their containers; crictl shows them.
func podLabels(name, uid string) map[string]any {
	return map[string]any{
		"io.kubernetes.pod.name":      name,
		"io.kubernetes.pod.namespace": "default",
		"io.kubernetes.pod.uid":       uid,
	}
}

// Container is the container config that crictl reads, like Pod.
type Container map[string]any

// NewContainer is a container of a name and an image, with a log file.
func NewContainer(name, image string, command ...string) Container {
	return Container{
		"metadata": map[string]any{"name": name, "attempt": 0},
		"image":    map[string]any{"image": image},
		"command":  command,
		"log_path": name + "_0.log",
	}
}

// RunPod runs a pod's sandbox by a runtime handler, the default one if empty, and returns its id.
func (n *Node) RunPod(ctx context.Context, p Pod, handler string) (id string, err error) {
	file, err := n.config(p)
	if err != nil {
		return "", err
	}
	args := []string{"runp"}
	if handler != "" {
		args = append(args, "--runtime", handler)
	}
	return n.crictlID(ctx, append(args, file)...)
}

// CreateContainer pulls a container's image, creates the container in a pod that RunPod returned,
// and returns its id.
func (n *Node) CreateContainer(ctx context.Context, pod string, p Pod, c Container) (id string, err error) {
	podFile, err := n.config(p)
	if err != nil {
		return "", err
	}
	if _, ok := c["labels"]; !ok {
		c = maps.Clone(c)
		c["labels"] = p["labels"]
	}
	file, err := n.config(c)
	if err != nil {
		return "", err
	}
	return n.crictlID(ctx, "create", "--with-pull", pod, file, podFile)
}

// RemovePod stops and removes a pod, and then its cgroup, which a kubelet would remove.
func (n *Node) RemovePod(ctx context.Context, id string, p Pod) error {
	for _, verb := range []string{"stopp", "rmp"} {
		if _, err := n.Output(ctx, "crictl", verb, id); err != nil {
			return err
		}
	}
	linux, _ := p["linux"].(map[string]any)
	parent, _ := linux["cgroup_parent"].(string)
	if !strings.HasPrefix(parent, n.CgroupParent()+"/") {
		return nil // not one that NewPod made
	}
	return removeCgroups(ctx, parent)
}

func (n *Node) crictlID(ctx context.Context, args ...string) (string, error) {
	out, err := n.Output(ctx, "crictl", args...)
	return strings.TrimSpace(out), err
}

// config writes a file for crictl, named by its content.
func (n *Node) config(v any) (path string, err error) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encode crictl's file: %w", err)
	}
	path = n.o.path("crictl", uuid.NewSHA1(uuid.NameSpaceURL, text).String()+".json")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("write crictl's file: %w", err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return "", fmt.Errorf("write crictl's file: %w", err)
	}
	return path, nil
}
