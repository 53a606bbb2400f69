package badinput

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
)

// step is the call that a case fails at.
type step int

const (
	atRun step = iota
	atCreate
	atStart
)

// badCase is one thing that is wrong in a pod that is fine otherwise.
type badCase struct {
	name string
	at   step

	pod       func(*runtimeapi.PodSandboxConfig)
	container func(*runtimeapi.ContainerConfig)
	// files are those of the container's image; nil for a sound disk's.
	files []images.File
	// absent leaves the image in the registry.
	absent bool
	// before changes the node before the call that fails, and returns the way back.
	before func(t *testing.T, s *suite, p *pod) (undo func())

	code codes.Code
	want string // see mask
}

func emptyConfig() v1.Config { return v1.Config{} }

// check takes a pod as far as its mistake, and counts what is left.
func (s *suite) check(t *testing.T, c badCase) {
	t.Helper()
	ref := s.disk
	if c.files != nil {
		ref = s.image(t, c.name+":1", c.files)
	}
	if c.files != nil && !c.absent {
		s.pull(t, ref)
	}
	before := s.census(t)
	p := s.newPod(t, "pod", c.pod)
	err := s.runPod(t, p)
	if c.at == atRun {
		refused(t, err, c)
		s.wantNothingSince(t, before)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	s.checkContainer(t, c, p, newContainer(ref, c.container))
	s.remove(t, p)
	s.wantNothingSince(t, before)
}

func (s *suite) checkContainer(t *testing.T, c badCase, p *pod, config *runtimeapi.ContainerConfig) {
	t.Helper()
	before := s.census(t)
	undo := func() {}
	if c.before != nil {
		undo = c.before(t, s, p)
	}
	id, err := s.create(t, p, config)
	if c.at == atCreate {
		undo()
		refused(t, err, c)
		s.wantNothingSince(t, before)
		return
	}
	if err != nil {
		undo()
		t.Fatal(err)
	}
	created := s.census(t)
	err = s.start(t, id)
	undo()
	refused(t, err, c)
	s.wantStartError(t, id, err)
	s.wantNothingSince(t, created, "file")
	s.removeContainer(t, id)
	s.wantNothingSince(t, before)
}

// wantStartError checks that the container tells what its start answered.
func (s *suite) wantStartError(t *testing.T, id string, cause error) {
	t.Helper()
	reply, err := s.pods.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		t.Fatal(err)
	}
	got := reply.GetStatus()
	if got.State != runtimeapi.ContainerState_CONTAINER_EXITED || got.ExitCode != 128 ||
		got.Reason != "StartError" || got.Message != status.Convert(cause).Message() {
		t.Errorf("status after the failed start: %v", got)
	}
}

// refused checks the answer to the call that should fail.
func refused(t *testing.T, err error, c badCase) {
	t.Helper()
	got := status.Convert(err)
	if got.Code() != c.code {
		t.Errorf("code %v, want %v", got.Code(), c.code)
	}
	if text := mask(got.Message()); text != c.want {
		t.Errorf("said\n\t%s\nwant\n\t%s", text, c.want)
	}
}

// mask replaces what is new in each run.
func mask(text string) string {
	for _, m := range []struct{ what, by string }{
		{`cni-[0-9a-f-]{36}`, "NETNS"},
		{`[0-9a-f]{64}`, "ID"},
		{`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`, "UUID"},
		{`default_pod_[0-9a-f]{12}`, "DOMAIN"},
		{`/tmp/nodevirt-[0-9]+`, "DIR"},
	} {
		text = regexp.MustCompile(m.what).ReplaceAllString(text, m.by)
	}
	return text
}

func (s *suite) census(t *testing.T) node.Census {
	t.Helper()
	c, err := s.n.Leftovers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wantNothingSince fails for all that came or went since, but for some kinds.
func (s *suite) wantNothingSince(t *testing.T, before node.Census, but ...string) {
	t.Helper()
	diff := slices.DeleteFunc(s.census(t).Diff(before), func(line string) bool {
		return slices.Contains(but, strings.Fields(line)[1])
	})
	if len(diff) > 0 {
		t.Errorf("left:\n%s", strings.Join(diff, "\n"))
	}
}
