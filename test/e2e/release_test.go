package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/wait"
)

// TestWhatIsLeftOfAnEnd: what can't be released when a VM ends is released as soon as possible,
// before the container is removed: the pod's next VM may need it.
func TestWhatIsLeftOfAnEnd(t *testing.T) {
	t.Parallel()
	c := vmPod(t).vm(suite.halt).start()
	dirs := cgroupDirs(filepath.Join(c.pod.config.Linux.CgroupParent, c.id))
	if len(dirs) == 0 {
		t.Fatal("the machine has no cgroup")
	}
	other := exec.CommandContext(t.Context(), "sleep", "infinity") // a group with it can't be removed
	assert.NilError(t, other.Start())
	end := func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	}
	t.Cleanup(end)
	for _, dir := range dirs {
		assert.NilError(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(other.Process.Pid)), 0))
	}
	c.stop(0)
	if s := c.status(); s.State != runtimeapi.ContainerState_CONTAINER_EXITED {
		t.Errorf("it is %v", s.State)
	}
	if _, err := os.Stat(dirs[0]); err != nil {
		t.Fatalf("the cgroup went with a process in it: %v", err)
	}
	end()
	wait.Until(t, "the cgroup is taken back", func() bool {
		_, err := os.Stat(dirs[0])
		return errors.Is(err, fs.ErrNotExist)
	})
}

// TestAnotherAttempt: the next attempt at a container replaces one that was not started, as a kubelet
// makes after a failed start; an older attempt does not, and none replaces a running one.
func TestAnotherAttempt(t *testing.T) {
	t.Parallel()
	p := vmPod(t)
	attempt := func(n uint32) (*runtimeapi.CreateContainerResponse, error) {
		config := p.vmConfig(suite.halt)
		config.Metadata.Attempt, config.LogPath = n, fmt.Sprintf("guest_%d.log", n)
		return suite.cri.CreateContainer(t.Context(), p.createRequest(config))
	}
	_, err := attempt(1)
	assert.NilError(t, err)
	if _, err := attempt(0); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("an older attempt: %v", err)
	}
	second, err := attempt(2)
	assert.NilError(t, err)
	if l := listed(t, &runtimeapi.ContainerFilter{PodSandboxId: p.id}); len(l) != 1 || l[0].Id != second.ContainerId {
		t.Errorf("the pod has %v", l)
	}
	_, err = suite.cri.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: second.ContainerId})
	assert.NilError(t, err)
	if _, err := attempt(3); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("another VM beside the one that runs: %v", err)
	}
}
