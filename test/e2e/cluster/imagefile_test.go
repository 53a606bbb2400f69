//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vminfo"
	"github.com/nodevirt/nodevirt/test/node"
)

// imagesOf returns the files that VMs read their disks from, except their own disks: for each node and file,
// the last VM that reads it.
func imagesOf(t *testing.T, selector string) map[string]map[string]string {
	t.Helper()
	files := map[string]map[string]string{}
	for on, ids := range containersOf(t, selector) {
		files[on.Name()] = map[string]string{}
		for _, id := range ids {
			for file, target := range strangeDisks(t, on, id) {
				files[on.Name()][file] = id + " " + target
			}
		}
	}
	return files
}

// containersOf are the ids of the first containers of pods that run, by their nodes.
func containersOf(t *testing.T, selector string) map[*node.Node][]string {
	t.Helper()
	var pods corev1.PodList
	assert.NilError(t, json.Unmarshal([]byte(kubectl(t, "get", "pods", "--selector="+selector, "-o", "json")), &pods))
	ids := map[*node.Node][]string{}
	for _, pod := range pods.Items {
		on := suite.Node(pod.Spec.NodeName)
		if on == nil || len(pod.Status.ContainerStatuses) == 0 {
			t.Fatalf("pod %s runs on %q: %+v", pod.Name, pod.Spec.NodeName, pod.Status)
		}
		_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
		ids[on] = append(ids[on], id)
	}
	return ids
}

// strangeDisks are the disks that a machine has open and that are not in its VM's own folder.
func strangeDisks(t *testing.T, on *node.Node, id string) map[string]string {
	t.Helper()
	text, err := on.Crictl(t.Context(), "inspect", id)
	assert.NilError(t, err)
	var reply struct{ Info vminfo.Info }
	assert.NilError(t, json.Unmarshal([]byte(text), &reply))
	// The PID is one of the node's.
	opened, err := filepath.Glob(fmt.Sprintf("/proc/%d/root/proc/%d/fd/*", on.PID(), reply.Info.PID))
	assert.NilError(t, err)
	files := map[string]string{}
	for _, fd := range opened {
		target, err := os.Readlink(fd)
		if err != nil || !strings.Contains(target, "disk") || strings.Contains(target, id) {
			continue
		}
		info, err := os.Stat(fd)
		if err != nil {
			continue
		}
		if s, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() {
			files[fmt.Sprintf("%d:%d", s.Dev, s.Ino)] = target
		}
	}
	return files
}
