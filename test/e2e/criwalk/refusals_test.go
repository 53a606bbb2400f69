package criwalk

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// wantRefused checks a refusal's code, and that its message says why.
func wantRefused(t *testing.T, what string, err error, code codes.Code, why ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Errorf("%s: %v; want %s", what, err, code)
	}
	for _, w := range why {
		if !strings.Contains(status.Convert(err).Message(), w) {
			t.Errorf("%s: %v; want it to say %q", what, err, w)
		}
	}
}

// targeting is a container of a pod that wants to share a container's processes, as `kubectl debug
// --target` makes it.
func targeting(p *pod, image string, target *subject) *subject {
	s := newSubject(p, "debugger", image)
	s.config.Linux.SecurityContext.NamespaceOptions = &runtimeapi.NamespaceOption{
		Pid: runtimeapi.NamespaceMode_TARGET, TargetId: target.id,
	}
	return s
}

func TestTargetOfANamespace(t *testing.T) {
	t.Parallel()
	p := newPod(t, "target", "vm").run()
	machine, process := newSubject(p, "compute", suite.machine), newSubject(p, "sidecar", suite.process)
	assert.NilError(t, machine.create())
	assert.NilError(t, process.create())
	for i := range 2 { // created, then running
		for _, id := range []string{machine.id, machine.id[:shortID]} {
			target := *machine
			target.id = id
			wantRefused(t, "a container in a VM's namespaces", targeting(p, suite.process, &target).create(),
				codes.Unimplemented, id, "is a virtual machine", "--target")
		}
		if i == 0 {
			assert.NilError(t, machine.start())
		}
	}
	assert.NilError(t, process.start())
	wantRefused(t, "a VM in a container's namespaces", targeting(p, suite.machine, process).create(),
		codes.InvalidArgument, "shares no processes")
	// A sidecar can be debugged as any container.
	debugger := targeting(p, suite.process, process)
	assert.NilError(t, debugger.create())
	assert.NilError(t, debugger.start())
}

func TestSecondVM(t *testing.T) {
	t.Parallel()
	p := newPod(t, "second", "vm").run()
	first, second := newSubject(p, "first", suite.machine), newSubject(p, "second", suite.machine)
	assert.NilError(t, first.create())
	wantRefused(t, "a second VM beside a created one", second.create(), codes.FailedPrecondition,
		`"first"`, first.id, "one VM at a time")
	assert.NilError(t, first.start())
	wantRefused(t, "a second VM beside a running one", second.create(), codes.FailedPrecondition,
		`"first"`, first.id, "one VM at a time")
	assert.NilError(t, first.stop())
	assert.NilError(t, second.create())
	assert.NilError(t, second.start())
	if err := first.start(); status.Code(err) != codes.Unknown {
		t.Errorf("start of one that has ended: %v", err)
	}
}

// TestImageVolume has a VM with an OCI image as a volume that is no disk.
func TestImageVolume(t *testing.T) {
	t.Parallel()
	machine := newSubject(newPod(t, "image-volume", "vm").run(), "compute", suite.machine)
	machine.config.Mounts = append(machine.config.Mounts, &runtimeapi.Mount{
		ContainerPath: "/data", Image: &runtimeapi.ImageSpec{Image: suite.process}, Readonly: true,
	})
	wantRefused(t, "a VM with an image volume", machine.create(), codes.InvalidArgument,
		`disk "data"`, suite.process, "no disk in /disk")
}
