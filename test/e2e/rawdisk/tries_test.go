package rawdisk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vminfo"
	"github.com/nodevirt/nodevirt/test/hold"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// short is a create whose caller has little time, as a kubelet has for a large disk.
func (p *pod) short(image string, change ...func(*runtimeapi.ContainerConfig)) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), 5*time.Second)
	defer cancel()
	_, err := p.create(ctx, image, change...)
	return err
}

// held begins to expand a new image's disk, whose qemu-img waits until it is released.
// The call that began it is over.
func (p *pod) held(word string) (image string, release func()) {
	p.t.Helper()
	image, err := push(p.t.Context(), strings.ToLower(p.t.Name()), word)
	assert.NilError(p.t, err)
	release, done := hold.Held(p.t, suite.convert, func() error { return p.short(image) })
	p.t.Cleanup(release)
	p.wantUnfinished(<-done)
	return image, release
}

func (p *pod) wantUnfinished(err error) {
	p.t.Helper()
	if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "the work goes on, try again") {
		p.t.Errorf("a try that came too early: %v", err)
	}
}

// folders are those of containers.
func folders(t *testing.T) []os.DirEntry {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(suite.Dir(), "nodevirt/containers"))
	assert.NilError(t, err)
	return list
}

// nothing waits until no container is there, and nothing but what bases there were.
func nothing(t *testing.T, bases int) {
	t.Helper()
	wait.Success(t, "what failed attempts made to go", func(context.Context) error {
		if n := len(folders(t)); n > 0 {
			return fmt.Errorf("%d containers are left", n)
		}
		made, err := os.ReadDir(filepath.Join(suite.Dir(), "nodevirt/expanded"))
		if err == nil && len(made) != bases {
			err = fmt.Errorf("%d expanded disks are left; want %d", len(made), bases)
		}
		return err
	})
}

func bases(t *testing.T) int {
	t.Helper()
	made, err := os.ReadDir(filepath.Join(suite.Dir(), "nodevirt/expanded"))
	assert.NilError(t, err)
	return len(made)
}

// TestTries: the next try reports and takes over what a try began.
func TestTries(t *testing.T) {
	p := runPod(t, "tries")
	image, release := p.held("tried")
	list, err := suite.cri.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	assert.NilError(t, err)
	if len(list.Containers) != 0 {
		t.Errorf("an incomplete container is listed: %v", list.Containers)
	}
	reply, err := suite.cri.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id, Verbose: true})
	assert.NilError(t, err)
	making, err := vminfo.ReadMaking(reply.Info)
	assert.NilError(t, err)
	if making == nil || making.Container != "vm" {
		t.Errorf("the pod reports the incomplete container as %+v", making)
	}
	p.wantUnfinished(p.short(image))
	before := folders(t)
	release()
	// A kubelet names another file for the termination message in each try.
	id, err := p.create(t.Context(), image, func(c *runtimeapi.ContainerConfig) {
		c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/dev/termination-log", HostPath: filepath.Join(suite.Dir(), "termination")}}
	})
	assert.NilError(t, err)
	if len(before) != 1 || before[0].Name() != id {
		t.Errorf("the container is %s, the one that was begun %v", id, before)
	}
	s, err := suite.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	assert.NilError(t, err)
	if s.Status.State != runtimeapi.ContainerState_CONTAINER_CREATED || len(s.Status.Mounts) != 1 {
		t.Errorf("the container is %v", s.Status)
	}
	_, err = suite.cri.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id})
	assert.NilError(t, err)
	wait.Success(t, "the guest to run", func(context.Context) error {
		log, err := os.ReadFile(s.Status.LogPath)
		if err == nil && !strings.Contains(string(log), "tried") {
			err = fmt.Errorf("the guest says %q", log)
		}
		return err
	})
	if _, err := p.create(t.Context(), image); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("another try for a container that is there: %v", err)
	}
}

// TestAPodThatGoes: its stop ends the work, and the call that waits for it.
func TestAPodThatGoes(t *testing.T) {
	before := bases(t)
	p := runPod(t, "goes")
	image, _ := p.held("gone")
	waits := make(chan error, 1)
	// Whether the call waits by then can't be seen: one that comes later begins again, in vain.
	go func() { waits <- p.short(image) }()
	_, err := suite.cri.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id})
	assert.NilError(t, err)
	if err := <-waits; err == nil {
		t.Error("a container was made in a pod that went")
	}
	nothing(t, before)
}

// TestForgotten: an expansion that no caller waits for is given up.
func TestForgotten(t *testing.T) {
	before := bases(t)
	p := runPod(t, "forgotten")
	p.held("forgotten")
	nothing(t, before)
}

// TestAnotherMachine: a try for another machine takes the place of one under way.
func TestAnotherMachine(t *testing.T) {
	p := runPod(t, "another")
	image, release := p.held("another")
	first := folders(t)[0].Name()
	done := make(chan error, 1)
	var id string
	go func() {
		var err error
		id, err = p.create(t.Context(), image, func(c *runtimeapi.ContainerConfig) {
			c.Linux.Resources.MemoryLimitInBytes = 48 * mebibyte
		})
		done <- err
	}()
	wait.Success(t, "the first VM to be undone", func(context.Context) error {
		if now := folders(t); len(now) == 1 && now[0].Name() == first {
			return errors.New("the first VM is not removed")
		}
		return nil
	})
	release()
	assert.NilError(t, <-done)
	s, err := suite.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	assert.NilError(t, err)
	if got := s.Status.Resources.Linux.MemoryLimitInBytes; got != 48*mebibyte {
		t.Errorf("the machine has a limit of %d", got)
	}
}

// TestTheShimIsKilled: what it was expanding ends with it, and begins again.
func TestTheShimIsKilled(t *testing.T) {
	before := bases(t)
	p := runPod(t, "killed")
	image, release := p.held("anew")
	assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGKILL))
	release()
	assert.NilError(t, suite.Resume(t.Context(), node.Shim))
	nothing(t, before)
	id, err := p.create(t.Context(), image)
	assert.NilError(t, err)
	_, err = suite.cri.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id})
	assert.NilError(t, err)
}
