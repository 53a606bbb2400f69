package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

const mebibyte = 1 << 20

// What a VM of these tests has unless it says otherwise.
const (
	guestMemory = 128 * mebibyte
	overhead    = 256 * mebibyte
)

// pod is a pod of one test, and is removed when that ends.
type pod struct {
	t      *testing.T
	id     string
	config *runtimeapi.PodSandboxConfig
}

// vmPod runs a pod of the handler vm.
func vmPod(t *testing.T, change ...func(*runtimeapi.PodSandboxConfig)) *pod {
	t.Helper()
	return runPod(t, "vm", append([]func(*runtimeapi.PodSandboxConfig){sized}, change...)...)
}

// sized gives a pod the overhead of a VM.
func sized(c *runtimeapi.PodSandboxConfig) {
	c.Linux.Overhead = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: overhead}
}

// runPod runs a pod that is named after the test.
func runPod(t *testing.T, handler string, change ...func(*runtimeapi.PodSandboxConfig)) *pod {
	t.Helper()
	p := podOf(t, handler, change...)
	reply, err := suite.cri.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: p.config, RuntimeHandler: handler})
	assert.NilError(t, err)
	p.id = reply.PodSandboxId
	t.Cleanup(p.remove)
	return p
}

// podOf returns a pod that is named after the test, and does not run yet.
func podOf(t *testing.T, handler string, change ...func(*runtimeapi.PodSandboxConfig)) *pod {
	t.Helper()
	name := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(t.Name(), "Test"), "/", "-"))
	if handler == "" {
		name += "-ordinary"
	}
	text, err := json.Marshal(suite.NewPod(name))
	assert.NilError(t, err)
	p := &pod{t: t, config: &runtimeapi.PodSandboxConfig{}}
	assert.NilError(t, protojson.Unmarshal(text, p.config))
	for _, c := range change {
		c(p.config)
	}
	return p
}

// named distinguishes a test's further pods from its first.
func named(suffix string) func(*runtimeapi.PodSandboxConfig) {
	return func(c *runtimeapi.PodSandboxConfig) { c.Metadata.Name += "-" + suffix }
}

// annotated gives a pod annotations.
func annotated(pairs map[string]string) func(*runtimeapi.PodSandboxConfig) {
	return func(c *runtimeapi.PodSandboxConfig) { c.Annotations = maps.Clone(pairs) }
}

// remove stops and removes the pod, and then its cgroup, as a kubelet does: one
// that still holds something can't be removed.
func (p *pod) remove() {
	if p.t.Failed() {
		p.t.Log(suite.LogOf(node.Shim, "pod.name="+p.config.Metadata.Name+" ", 10))
		logs, _ := filepath.Glob(filepath.Join(p.config.LogDirectory, "*.log"))
		for _, path := range logs { // a guest's console
			p.t.Log(node.Tail(path, 30))
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.t.Context()), wait.Patience)
	defer cancel()
	if _, err := suite.cri.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		p.t.Errorf("stop pod: %v", err)
	}
	if _, err := suite.cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		p.t.Errorf("remove pod: %v", err)
	}
	for _, dir := range cgroupDirs(p.config.Linux.CgroupParent) {
		err := os.Remove(dir)
		for err != nil && !errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil { // a process that was killed holds its cgroup for a moment
			time.Sleep(20 * time.Millisecond)
			err = os.Remove(dir)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			p.t.Errorf("the pod left something in its cgroup: %v", err)
		}
	}
}

// cgroupDirs are the folders of a cgroup, in each hierarchy that has it.
func cgroupDirs(path string) []string {
	all, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup/*", path)) // fails for bad patterns alone
	unified, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", path))
	return append(all, unified...)
}

func (p *pod) status() *runtimeapi.PodSandboxStatus {
	p.t.Helper()
	reply, err := suite.cri.PodSandboxStatus(p.t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
	assert.NilError(p.t, err)
	return reply.Status
}

func (p *pod) ip() string {
	p.t.Helper()
	return p.status().GetNetwork().GetIp()
}

// netns is the path of the pod's network namespace in the node.
func (p *pod) netns() string {
	p.t.Helper()
	reply, err := suite.cri.PodSandboxStatus(p.t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id, Verbose: true})
	assert.NilError(p.t, err)
	var info struct {
		RuntimeSpec struct {
			Linux struct{ Namespaces []struct{ Type, Path string } }
		}
	}
	assert.NilError(p.t, json.Unmarshal([]byte(reply.Info["info"]), &info))
	for _, ns := range info.RuntimeSpec.Linux.Namespaces {
		if ns.Type == "network" {
			return ns.Path
		}
	}
	p.t.Fatal("the pod has no network namespace")
	return ""
}

// inside calls do in the pod's network namespace. From here the link /var/run leads out of the node.
func (p *pod) inside(do func() error) error {
	p.t.Helper()
	return suite.Inside("/run/netns/"+filepath.Base(p.netns()), do)
}

// inNode runs a program in the node.
func inNode(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := suite.Output(t.Context(), name, args...)
	assert.NilError(t, err)
	return out
}

func crictl(t *testing.T, args ...string) string {
	t.Helper()
	return inNode(t, "crictl", args...)
}
