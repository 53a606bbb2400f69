package images_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
)

// The program runs as the first process of a PID namespace, with an orphan that ends.
func TestPause(t *testing.T) {
	img := newNode(t).roundTrip("pause:dev", func() (v1.Image, error) { return images.Pause(t.Context(), guest.Options{}) })
	program := filepath.Join(unpack(t, img), "pause")
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "(sleep 0.2 &); exec "+program)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	waitUntil(t, "pause runs", func() bool {
		running, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", cmd.Process.Pid))
		return err == nil && running == program
	})
	waitUntil(t, "the orphan is reaped", func() bool {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		return err == nil && strings.TrimSpace(string(children)) == ""
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("pause ended badly: %v", err)
	}
}

func waitUntil(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !reached(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
