package criwalk

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const mebibyte = 1 << 20

// pod is a pod of one test, and is removed when that ends.
type pod struct {
	t       *testing.T
	id      string // as long as it has one
	handler string
	config  *runtimeapi.PodSandboxConfig
}

func newPod(t *testing.T, name, handler string) *pod {
	t.Helper()
	text, err := json.Marshal(suite.NewPod(name))
	assert.NilError(t, err)
	p := &pod{t: t, handler: handler, config: &runtimeapi.PodSandboxConfig{}}
	assert.NilError(t, protojson.Unmarshal(text, p.config))
	p.config.Linux.Overhead = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 256 * mebibyte}
	return p
}

func (p *pod) run() *pod {
	p.t.Helper()
	reply, err := suite.cri.RunPodSandbox(p.t.Context(), p.request())
	assert.NilError(p.t, err)
	p.id = reply.PodSandboxId
	p.t.Cleanup(p.remove)
	return p
}

func (p *pod) request() *runtimeapi.RunPodSandboxRequest {
	return &runtimeapi.RunPodSandboxRequest{Config: p.config, RuntimeHandler: p.handler}
}

func (p *pod) remove() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.t.Context()), 3*time.Minute)
	defer cancel()
	if _, err := suite.cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		p.t.Errorf("remove pod: %v", err)
	}
}

// The lengths of ids, in characters: crictl shows short ones.
const (
	wholeID = 64
	shortID = 13
)

// subject is one of the two that are compared: a VM container or an ordinary one, and its pod.
type subject struct {
	*pod
	id     string
	name   string
	image  string
	config *runtimeapi.ContainerConfig
	of     kind
}

// kind is what of a subject a walk is about.
type kind int

const (
	ofContainer kind = iota
	ofSandbox
	ofImage
)

// subjectID is the id that cases ask by.
func (s *subject) subjectID() string {
	switch s.of {
	case ofSandbox:
		return s.pod.id
	case ofImage:
		return s.image
	}
	return s.id
}

// newSubject is a container as a kubelet asks for it: by the image's id, with its own mounts.
func newSubject(p *pod, name, image string) *subject {
	p.t.Helper()
	reply, err := suite.images.ImageStatus(p.t.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	assert.NilError(p.t, err)
	s := &subject{pod: p, name: name, image: image}
	s.config = &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: name},
		Image:       &runtimeapi.ImageSpec{Image: reply.GetImage().GetId(), UserSpecifiedImage: image},
		Labels:      map[string]string{"io.kubernetes.container.name": name, "io.kubernetes.pod.uid": p.config.Metadata.Uid},
		Annotations: map[string]string{"io.kubernetes.container.restartCount": "0"},
		Envs:        []*runtimeapi.KeyValue{{Key: "KUBERNETES_PORT", Value: []byte("tcp://10.0.0.1:443")}},
		LogPath:     name + "_0.log",
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{
				CpuPeriod: 100_000, CpuQuota: 100_000, CpuShares: 1024, MemoryLimitInBytes: 64 * mebibyte, OomScoreAdj: 1000,
			},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			},
		},
	}
	for _, path := range []string{"/etc/hosts", "/dev/termination-log"} {
		host := filepath.Join(p.t.TempDir(), filepath.Base(path))
		assert.NilError(p.t, os.WriteFile(host, nil, 0o644))
		s.config.Mounts = append(s.config.Mounts, &runtimeapi.Mount{ContainerPath: path, HostPath: host})
	}
	return s
}

func (s *subject) request() *runtimeapi.CreateContainerRequest {
	return &runtimeapi.CreateContainerRequest{PodSandboxId: s.pod.id, Config: s.config, SandboxConfig: s.pod.config}
}

func (s *subject) create() error {
	reply, err := suite.cri.CreateContainer(s.t.Context(), s.request())
	s.id = reply.GetContainerId()
	return err
}

func (s *subject) start() error {
	_, err := suite.cri.StartContainer(s.t.Context(), &runtimeapi.StartContainerRequest{ContainerId: s.id})
	return err
}

func (s *subject) stop() error {
	_, err := suite.cri.StopContainer(s.t.Context(), &runtimeapi.StopContainerRequest{ContainerId: s.id})
	return err
}

func (s *subject) removeIt() error {
	_, err := suite.cri.RemoveContainer(s.t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: s.id})
	return err
}

func (s *subject) removeImage() error {
	_, err := suite.images.RemoveImage(s.t.Context(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: s.image}})
	return err
}

func (s *subject) stopPod() error {
	_, err := suite.cri.StopPodSandbox(s.t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.pod.id})
	return err
}

func (s *subject) removePod() error {
	_, err := suite.cri.RemovePodSandbox(s.t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.pod.id})
	return err
}

// mask replaces what is the subject's own, and what is new in each run.
func (s *subject) mask(text string) string {
	for _, own := range []struct{ what, by string }{
		{s.id, "ID"}, {s.pod.id, "POD-ID"}, {s.pod.config.Metadata.Uid, "POD-UID"}, {s.pod.config.Metadata.Name, "POD"},
		{s.image, "IMAGE"}, {s.config.GetImage().GetImage(), "IMAGE-ID"},
		{suite.Dir(), "DIR"},
	} {
		if own.what != "" {
			text = strings.ReplaceAll(text, own.what, own.by)
		}
	}
	if s.name != "" {
		text = regexp.MustCompile(`\b`+s.name).ReplaceAllString(text, "NAME")
	}
	for _, m := range []struct{ what, by string }{
		{`[0-9a-f]{64}`, "HEX"},
		{`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`, "UUID"},
		{`/tmp/[^ "]*/`, "TMP/"},
		{`127\.0\.0\.1:\d+/(exec|attach|portforward)/[^ "]+`, "STREAM/$1/TOKEN"},
		{`criu .*`, "CRIU …"},
		{`_[0-9a-f]{12}\b`, "_HEX"},
		// What it says depends on the moment.
		{`(connection error: desc = |error reading|transport is closing|closing transport).*`, "… (no connection)"},
		{`\b10\.244\.\d+\.\d+`, "IP"},
	} {
		text = regexp.MustCompile(m.what).ReplaceAllString(text, m.by)
	}
	return text
}
