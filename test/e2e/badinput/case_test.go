package badinput

import (
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
)

// step is the call that a case fails at.
type step int

const (
	atRun  step = iota
	atPull      // before there is a pod
	atCreate
	atStart
)

// badCase is one thing that is wrong in a pod that is fine otherwise. The group's file in testdata
// has the answer.
type badCase struct {
	name string
	at   step
	code codes.Code

	pod       func(*runtimeapi.PodSandboxConfig)
	container func(*runtimeapi.ContainerConfig)
	// files are those of the container's image; nil for a sound disk's. Above are further layers.
	files []images.File
	above [][]images.File
	// image changes the container's image before it is pushed; push pushes another in its place.
	image func(t *testing.T, img v1.Image) v1.Image
	push  func(t *testing.T, s *suite) (ref string)
	// absent leaves the image in the registry.
	absent bool
	// before makes trouble right before the call that fails, and returns the way back.
	before func(t *testing.T, s *suite, p *pod) (undo func())
}

// sharesPod says whether the case's pod has nothing wrong with it, and is as good after the case as before.
func (c badCase) sharesPod() bool { return c.at == atCreate && c.pod == nil && c.before == nil }

// imageFor is the reference of the case's image. It is on the node if a pod will need it.
func (s *suite) imageFor(t *testing.T, c badCase) (ref string) {
	t.Helper()
	switch {
	case c.push != nil:
		return c.push(t, s)
	case c.files == nil:
		return s.disk
	}
	ref = s.push(t, strings.ReplaceAll(c.name, " ", "-"), c.build(t))
	if c.at != atPull && !c.absent {
		s.pull(t, ref)
	}
	return ref
}

// checkPod takes a pod as far as its mistake, and counts what is left.
func (s *suite) checkPod(t *testing.T, c badCase, ref string, answers *answers) {
	t.Helper()
	before := s.census(t)
	p := s.newPod(t, "pod", c.pod)
	err := s.runPod(t, p)
	if c.at == atRun {
		answers.check(t, c, err)
		s.wantNothingSince(t, before)
		return
	}
	assert.NilError(t, err)
	s.checkContainer(t, c, p, newContainer(ref, c.container), answers)
	s.remove(t, p)
	s.wantNothingSince(t, before)
}

// build makes the container's image.
func (c badCase) build(t *testing.T) v1.Image {
	t.Helper()
	img := imageOf(t, append([][]images.File{c.files}, c.above...)...)
	if c.image != nil {
		img = c.image(t, img)
	}
	return img
}

func (s *suite) checkContainer(
	t *testing.T, c badCase, p *pod, config *runtimeapi.ContainerConfig, answers *answers,
) {
	t.Helper()
	before := s.census(t)
	if c.at == atCreate {
		undo := c.trouble(t, s, p)
		troubled := s.census(t)
		_, err := s.create(t, p, config)
		answers.check(t, c, err)
		s.wantNothingSince(t, troubled)
		undo()
		s.wantNothingSince(t, before)
		return
	}
	id, err := s.create(t, p, config)
	assert.NilError(t, err)
	undo := c.trouble(t, s, p)
	troubled := s.census(t)
	err = s.start(t, id)
	answers.check(t, c, err)
	s.wantStartError(t, id, err)
	s.wantNothingSince(t, troubled, "file") // its folder may hold a console
	undo()
	s.removeContainer(t, id)
	s.wantNothingSince(t, before)
}

func (c badCase) trouble(t *testing.T, s *suite, p *pod) (undo func()) {
	t.Helper()
	if c.before == nil {
		return func() {}
	}
	return c.before(t, s, p)
}

// wantStartError checks that the container's status has the error of its start.
func (s *suite) wantStartError(t *testing.T, id string, cause error) {
	t.Helper()
	reply, err := s.pods.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	assert.NilError(t, err)
	got := reply.GetStatus()
	if got.State != runtimeapi.ContainerState_CONTAINER_EXITED || got.ExitCode != 128 ||
		got.Reason != "StartError" || got.Message != status.Convert(cause).Message() {
		t.Errorf("status after the failed start: %v", got)
	}
}

func (s *suite) census(t *testing.T) node.Census {
	t.Helper()
	c, err := s.n.Leftovers(t.Context())
	assert.NilError(t, err)
	return c
}

// wantNothingSince fails for all that came or went since, but for some kinds.
func (s *suite) wantNothingSince(t *testing.T, before node.Census, but ...string) {
	t.Helper()
	diff, err := s.n.Since(t.Context(), before, but...)
	if len(diff) > 0 || err != nil {
		t.Errorf("left: %v\n%s", err, strings.Join(diff, "\n"))
	}
}
