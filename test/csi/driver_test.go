package csi

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
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

// TestSanity: Kubernetes' suite for CSI drivers passes, with file systems and with block volumes.
func TestSanity(t *testing.T) {
	dir, endpoint := started(t)
	config := func(access string) sanity.TestConfig {
		c := sanity.NewTestConfig()
		c.Address = "unix:" + endpoint
		c.TargetPath, c.StagingPath = filepath.Join(dir, "target"), filepath.Join(dir, "staging")
		c.TestVolumeSize, c.TestVolumeExpandSize = 64<<20, 96<<20
		c.TestVolumeAccessType = access
		return c
	}
	block := config("block")
	sanity.GinkgoTest(&block)
	sanity.Test(t, config("mount"))
}
