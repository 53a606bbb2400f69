package csi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/needs"
)

func TestMain(m *testing.M) {
	needs.PartsOfAll("root and loop devices")
	os.Exit(loopfs.Private(m.Run))
}

// started runs the whole driver, and returns its socket.
func started(t *testing.T) (dir, endpoint string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi-")
	assert.NilError(t, err)
	o := Options{
		Dir: filepath.Join(dir, "state"), Endpoint: filepath.Join(dir, "csi.sock"), Controller: true, Node: "node-1",
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, o) }()
	t.Cleanup(func() {
		stop()
		assert.NilError(t, errors.Join(<-ended, Release(o.Dir), os.RemoveAll(dir)))
	})
	return dir, o.Endpoint
}

// inside is set in the test process that runs the suite.
const inside = "NODEVIRT_TEST_SANITY"

// alone runs a test in a separate process, and reports whether this is it. Ginkgo refuses to run in a process with
// the flag -test.parallel.
func alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inside) != "" {
		return true
	}
	self, err := os.Executable()
	assert.NilError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-test.v", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // with the thread the process would end
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	assert.NilError(t, err)
	return false
}

// slow takes a while to connect. The suite waits for a change of the connection's state from the one
// that it has read: for a minute, in vain, if that was the last.
type slow struct {
	credentials.TransportCredentials
}

func (s slow) ClientHandshake(ctx context.Context, authority string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	time.Sleep(time.Second)
	return s.TransportCredentials.ClientHandshake(ctx, authority, c)
}

func (s slow) Clone() credentials.TransportCredentials { return slow{s.TransportCredentials.Clone()} }

// TestSanity: Kubernetes' suite for CSI drivers passes, with file systems and with block volumes.
func TestSanity(t *testing.T) {
	if !alone(t) {
		return
	}
	dir, endpoint := started(t)
	config := func(access string) sanity.TestConfig {
		c := sanity.NewTestConfig()
		c.Address = "unix:" + endpoint
		c.TargetPath, c.StagingPath = filepath.Join(dir, "target"), filepath.Join(dir, "staging")
		c.TestVolumeSize, c.TestVolumeExpandSize = 64<<20, 96<<20
		c.TestVolumeAccessType = access
		c.DialOptions = append(c.DialOptions, grpc.WithTransportCredentials(slow{insecure.NewCredentials()}))
		return c
	}
	block := config("block")
	sanity.GinkgoTest(&block)
	sanity.Test(t, config("mount"))
}
