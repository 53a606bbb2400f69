package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestLifecycle(t *testing.T) {
	t.Parallel()
	p := vmPod(t)
	begun := time.Now().UnixNano()
	c := p.vm(suite.tiny, func(c *runtimeapi.ContainerConfig) {
		c.Annotations = map[string]string{"of": "the container"}
	})
	c.wantCreated(begun)
	c.wantSecondCreateRefused()

	c.start().up()
	s := c.status()
	if s.State != runtimeapi.ContainerState_CONTAINER_RUNNING || s.StartedAt < s.CreatedAt || s.FinishedAt != 0 {
		t.Errorf("a running VM has the status %v", s)
	}
	if got := c.page("/"); !strings.HasPrefix(got, "ip="+p.ip()+" ") {
		t.Errorf("the guest says %q to the node; the pod's IP is %s", got, p.ip())
	}
	c.echoes(c.echo(), "hello\n")
	other := runPod(t, "").sidecar("sleep", "1000000").start()
	page := crictl(t, "exec", other.id, "timeout", "20", "wget", "-q", "-O", "-", "http://"+p.ip()+"/")
	if page != c.page("/") {
		t.Errorf("another pod gets %q", page)
	}
	if got := crictl(t, "logs", c.id); !strings.Contains(got, "nodevirt guest: up host="+p.config.Hostname) {
		t.Errorf("crictl logs shows\n%s", got)
	}
	c.wantRefused("start", codes.Unknown)

	c.stop(60)
	c.wantEnd(c.status(), 0, "Completed")
	if lines := readLog(t, c.logFile()); !slices.Contains(lines, "nodevirt guest: poweroff") {
		t.Errorf("the guest did not say goodbye:\n%s", strings.Join(lines, "\n"))
	}
	c.wantRefused("start", codes.Unknown)
	c.stop(60) // again
	c.removeIt()
	c.wantGone()
	c.removeIt()
	c.stop(0)
}

// wantCreated checks the status of a container that was just created.
func (c *container) wantCreated(begun int64) {
	c.t.Helper()
	image, err := suite.images.ImageStatus(c.t.Context(), &runtimeapi.ImageStatusRequest{Image: c.config.Image})
	assert.NilError(c.t, err)
	s := c.status()
	if s.State != runtimeapi.ContainerState_CONTAINER_CREATED || s.StartedAt != 0 || s.FinishedAt != 0 {
		c.t.Errorf("a new container is %s, started at %d, finished at %d", s.State, s.StartedAt, s.FinishedAt)
	}
	if s.CreatedAt < begun || s.CreatedAt > time.Now().UnixNano() {
		c.t.Errorf("created at %d, which is not between %d and now", s.CreatedAt, begun)
	}
	if s.ImageId != image.Image.Id || !strings.HasPrefix(s.ImageId, "sha256:") {
		c.t.Errorf("image id %q; containerd has %q", s.ImageId, image.Image.Id)
	}
	if s.Image.GetImage() != c.config.Image.Image || s.ImageRef != image.Image.RepoDigests[0] {
		c.t.Errorf("image %q, reference %q", s.Image.GetImage(), s.ImageRef)
	}
	if s.LogPath != c.logFile() {
		c.t.Errorf("log path %q; want %q", s.LogPath, c.logFile())
	}
	if s.Labels["e2e"] != "guest" || s.Annotations["of"] != "the container" || s.Metadata.GetName() != "guest" {
		c.t.Errorf("labels %v, annotations %v, metadata %v", s.Labels, s.Annotations, s.Metadata)
	}
}

func (c *container) wantSecondCreateRefused() {
	c.t.Helper()
	_, err := suite.cri.CreateContainer(c.t.Context(), c.createRequest(c.config))
	if err == nil || !strings.Contains(err.Error(), c.id) {
		c.t.Errorf("a second container of the same name and attempt: %v", err)
	}
}

func (c *container) wantRefused(verb string, code codes.Code) {
	c.t.Helper()
	_, err := suite.cri.StartContainer(c.t.Context(), &runtimeapi.StartContainerRequest{ContainerId: c.id})
	if status.Code(err) != code {
		c.t.Errorf("%s of a container that is %s: %v; want %s", verb, c.status().State, err, code)
	}
}

func (c *container) wantGone() {
	c.t.Helper()
	_, err := suite.cri.ContainerStatus(c.t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: c.id})
	if status.Code(err) != codes.NotFound {
		c.t.Errorf("status of a removed container: %v", err)
	}
	list, err := suite.cri.ListContainers(c.t.Context(), &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{PodSandboxId: c.pod.id},
	})
	assert.NilError(c.t, err)
	if len(list.Containers) > 0 {
		c.t.Errorf("a removed container is listed: %v", list.Containers)
	}
}

func TestStopAndRemoveOfUnknownContainers(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"no-such-container", strings.Repeat("0", 64)} {
		_, err := suite.cri.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id})
		assert.NilError(t, err)
		_, err = suite.cri.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id})
		assert.NilError(t, err)
	}
}

func TestShortenedIDs(t *testing.T) {
	t.Parallel()
	p := vmPod(t)
	reply, err := suite.cri.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.id[:12], Config: p.vmConfig(suite.halt), SandboxConfig: p.config,
	})
	assert.NilError(t, err)
	whole := &container{pod: p, id: reply.ContainerId, config: p.vmConfig(suite.halt)}
	short := &container{pod: p, id: reply.ContainerId[:12], config: whole.config}
	short.start().saying("^halted$")
	if got := short.status().Id; got != whole.id {
		t.Errorf("the status of %s is of %s", short.id, got)
	}
	_, err = suite.cri.ReopenContainerLog(t.Context(), &runtimeapi.ReopenContainerLogRequest{ContainerId: short.id})
	assert.NilError(t, err)
	stats, err := suite.cri.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: short.id})
	assert.NilError(t, err)
	if stats.Stats.Attributes.Id != whole.id || stats.Stats.Memory.UsageBytes.GetValue() == 0 {
		t.Errorf("statistics of %s: %v", short.id, stats)
	}
	short.stop(0)
	whole.wantEnd(whole.status(), 137, "Error")
	short.removeIt()
	whole.wantGone()
	_, err = suite.cri.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id[:12]})
	assert.NilError(t, err)
	_, err = suite.cri.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id[:12]})
	assert.NilError(t, err)
}

func TestCrictlShowsVMs(t *testing.T) {
	t.Parallel()
	p := vmPod(t)
	c := p.vm(suite.halt).start()
	for _, command := range []struct {
		args []string
		want []string
	}{
		{[]string{"pods", "--id", p.id}, []string{p.id[:13], "Ready", p.config.Metadata.Name, "vm"}},
		{[]string{"ps", "--pod", p.id}, []string{c.id[:13], "Running", "guest", p.config.Metadata.Name}},
		{[]string{"ps", "--id", c.id[:13]}, []string{c.id[:13], "Running"}},
		{[]string{"images"}, []string{"tiny", "halt"}},
	} {
		out := crictl(t, command.args...)
		for _, want := range command.want {
			if !strings.Contains(out, want) {
				t.Errorf("crictl %s does not show %q:\n%s", strings.Join(command.args, " "), want, out)
			}
		}
	}
	var inspect struct {
		Status struct{ ID, State string }
		Info   processInfo
	}
	assert.NilError(t, json.Unmarshal([]byte(crictl(t, "inspect", c.id[:13])), &inspect))
	if inspect.Status.ID != c.id || inspect.Status.State != "CONTAINER_RUNNING" || inspect.Info.PID != c.pid() {
		t.Errorf("crictl inspect: %+v", inspect)
	}
	var inspectp struct {
		Status struct{ ID, State, RuntimeHandler string }
	}
	assert.NilError(t, json.Unmarshal([]byte(crictl(t, "inspectp", p.id[:13])), &inspectp))
	if inspectp.Status.ID != p.id || inspectp.Status.State != "SANDBOX_READY" || inspectp.Status.RuntimeHandler != "vm" {
		t.Errorf("crictl inspectp: %+v", inspectp)
	}
	var info struct {
		Status          struct{ Conditions []struct{ Type string } }
		RuntimeHandlers []struct{ Name string }
	}
	assert.NilError(t, json.Unmarshal([]byte(crictl(t, "info")), &info))
	if len(info.Status.Conditions) == 0 || !slices.ContainsFunc(info.RuntimeHandlers, func(h struct{ Name string }) bool { return h.Name == "vm" }) {
		t.Errorf("crictl info: %+v", info)
	}

	for _, args := range [][]string{{"stop", "--timeout", "0", c.id[:13]}, {"rm", c.id[:13]}, {"stopp", p.id[:13]}, {"rmp", p.id[:13]}} {
		crictl(t, args...)
	}
	c.wantGone()
}
