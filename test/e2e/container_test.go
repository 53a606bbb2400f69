package e2e

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/test/wait"
)

// container is a container of a pod, a VM or an ordinary one.
type container struct {
	*pod
	id     string
	config *runtimeapi.ContainerConfig
}

// newContainer is a container as a kubelet asks for it.
func (p *pod) newContainer(name, image string) *runtimeapi.ContainerConfig {
	labels := maps.Clone(p.config.Labels)
	labels["e2e"], labels["io.kubernetes.container.name"] = name, name
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: image},
		LogPath:  name + "_0.log",
		Labels:   labels,
		Linux:    &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{}},
	}
}

// vm creates a VM container.
func (p *pod) vm(image string, change ...func(*runtimeapi.ContainerConfig)) *container {
	p.t.Helper()
	config := p.vmConfig(image)
	for _, c := range change {
		c(config)
	}
	return p.create(config)
}

func (p *pod) vmConfig(image string) *runtimeapi.ContainerConfig {
	config := p.newContainer("guest", image)
	config.Linux.Resources.MemoryLimitInBytes = guestMemory
	return config
}

// sidecar creates an ordinary container.
func (p *pod) sidecar(command ...string) *container {
	p.t.Helper()
	config := p.newContainer("sidecar", suite.busybox)
	config.Command = command
	return p.create(config)
}

func (p *pod) create(config *runtimeapi.ContainerConfig) *container {
	p.t.Helper()
	reply, err := suite.cri.CreateContainer(p.t.Context(), p.createRequest(config))
	assert.NilError(p.t, err)
	return &container{pod: p, id: reply.ContainerId, config: config}
}

func (p *pod) createRequest(config *runtimeapi.ContainerConfig) *runtimeapi.CreateContainerRequest {
	return &runtimeapi.CreateContainerRequest{PodSandboxId: p.id, Config: config, SandboxConfig: p.config}
}

func (c *container) start() *container {
	c.t.Helper()
	_, err := suite.cri.StartContainer(c.t.Context(), &runtimeapi.StartContainerRequest{ContainerId: c.id})
	assert.NilError(c.t, err)
	return c
}

func (c *container) stop(seconds int64) {
	c.t.Helper()
	_, err := suite.cri.StopContainer(c.t.Context(), &runtimeapi.StopContainerRequest{ContainerId: c.id, Timeout: seconds})
	assert.NilError(c.t, err)
}

func (c *container) removeIt() {
	c.t.Helper()
	_, err := suite.cri.RemoveContainer(c.t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: c.id})
	assert.NilError(c.t, err)
}

func (c *container) status() *runtimeapi.ContainerStatus {
	c.t.Helper()
	reply, err := suite.cri.ContainerStatus(c.t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: c.id})
	assert.NilError(c.t, err)
	return reply.Status
}

// ended waits until the container has ended.
func (c *container) ended() *runtimeapi.ContainerStatus {
	c.t.Helper()
	var s *runtimeapi.ContainerStatus
	wait.Until(c.t, "the container ends", func() bool {
		s = c.status()
		return s.State == runtimeapi.ContainerState_CONTAINER_EXITED
	})
	return s
}

// wantEnd checks how the container ended.
func (c *container) wantEnd(s *runtimeapi.ContainerStatus, code int32, reason string) {
	c.t.Helper()
	if s.State != runtimeapi.ContainerState_CONTAINER_EXITED || s.ExitCode != code || s.Reason != reason {
		c.t.Errorf("ended as %s, code %d, reason %q, message %q; want code %d, reason %q",
			s.State, s.ExitCode, s.Reason, s.Message, code, reason)
	}
	if s.StartedAt < s.CreatedAt || s.FinishedAt <= s.StartedAt {
		c.t.Errorf("created at %d, started at %d, finished at %d", s.CreatedAt, s.StartedAt, s.FinishedAt)
	}
}

// processInfo is what the verbose status has about a VM's process.
type processInfo struct {
	PID int
	VM  struct {
		Domain struct {
			Name, UUID string
			UID, GID   int
		}
		Agent         agent.State
		DisplaySocket string
		Fork          struct{ Reason string }
	}
}

func (c *container) infoText() string {
	c.t.Helper()
	reply, err := suite.cri.ContainerStatus(c.t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: c.id, Verbose: true})
	assert.NilError(c.t, err)
	return reply.Info["info"]
}

func (c *container) info() processInfo {
	c.t.Helper()
	reply, err := suite.cri.ContainerStatus(c.t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: c.id, Verbose: true})
	assert.NilError(c.t, err)
	var info processInfo
	assert.NilError(c.t, json.Unmarshal([]byte(reply.Info["info"]), &info))
	return info
}

// pid is QEMU's, as the node sees it.
func (c *container) pid() int {
	c.t.Helper()
	pid := c.info().PID
	if pid == 0 {
		c.t.Fatal("the container has no process")
	}
	return pid
}

// kill kills QEMU.
func (c *container) kill() {
	c.t.Helper()
	inNode(c.t, "kill", "-9", strconv.Itoa(c.pid()))
}

// logFile is the container's log, as the machine sees it.
func (c *container) logFile() string {
	return filepath.Join(c.pod.config.LogDirectory, c.config.LogPath)
}

var criLine = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(?:Z|[+-]\d\d:\d\d) (stdout|stderr) ([FP]) (.*)$`)

// readLog is the lines of a file in CRI's log format. What is being written has no end yet, and is left out.
func readLog(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	assert.NilError(t, err)
	var lines []string
	open := false // the last line goes on
	for text := range strings.Lines(string(text[:bytes.LastIndexByte(text, '\n')+1])) {
		m := criLine.FindStringSubmatch(strings.TrimSuffix(text, "\n"))
		if m == nil {
			t.Fatalf("not CRI's log format: %q", text)
		}
		if open {
			lines[len(lines)-1] += m[3]
		} else {
			lines = append(lines, m[3])
		}
		open = m[2] == "P"
	}
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], "\r")
	}
	return lines
}

// saying waits for a line of the console that matches, and returns it.
func (c *container) saying(pattern string) string {
	c.t.Helper()
	return c.sayingWithin(wait.Patience, pattern)
}

func (c *container) sayingWithin(limit time.Duration, pattern string) string {
	c.t.Helper()
	re := regexp.MustCompile(pattern)
	for end := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		s := c.status() // before the log is read: one that ended says no more
		lines := readLog(c.t, c.logFile())
		if i := slices.IndexFunc(lines, re.MatchString); i >= 0 {
			return lines[i]
		}
		if s.State == runtimeapi.ContainerState_CONTAINER_EXITED || time.Now().After(end) {
			c.t.Fatalf("the guest, %s, code %d, %q, did not say %q but\n%s",
				s.State, s.ExitCode, s.Message, pattern, strings.Join(lines, "\n"))
		}
	}
}

// up waits until the guest says that it is.
func (c *container) up() *container {
	c.t.Helper()
	c.saying(`^nodevirt guest: up host=`)
	return c
}
