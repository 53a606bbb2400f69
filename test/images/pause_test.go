package images_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/needs"
	"github.com/nodevirt/nodevirt/test/wait"
)

// The program runs as the first process of a PID namespace, with an orphan that ends.
func TestPause(t *testing.T) {
	needs.Parts(t, "root, a Debian mirror")
	img := newNode(t).roundTrip("pause:dev", func() (v1.Image, error) { return images.Pause(t.Context(), guest.Options{}) })
	program := filepath.Join(unpack(t, img), "pause")
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "(sleep 0.2 &); exec "+program)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	assert.NilError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	wait.Until(t, "pause runs", func() bool {
		running, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid))
		return err == nil && running == program
	})
	wait.Until(t, "the orphan is reaped", func() bool {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		return err == nil && strings.TrimSpace(string(children)) == ""
	})
	assert.NilError(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Errorf("pause ended badly: %v", err)
	}
}
