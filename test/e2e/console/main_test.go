package console

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
)

const (
	// logLimit is the node's vm.log_limit.
	logLimit = 4 << 20
	// maxLag and keepLag are what the documentation promises.
	maxLag, keepLag = 64 << 20, 1 << 20
	// noiseSize is what the noisy guest prints: some seconds' worth under emulation.
	noiseSize = 2 << 20
)

// suite is the node that the tests share.
type suite struct {
	n   *node.Node
	cri runtimeapi.RuntimeServiceClient
}

func TestConsole(t *testing.T) {
	n := node.ForTest(t, node.Options{
		Subnet:     netip.MustParsePrefix("10.99.0.0/16"),
		ShimConfig: func(c map[string]any) { c["vm"].(map[string]any)["log_limit"] = "4Mi" },
	})
	conn, err := node.DialCRI(n.ShimSocket())
	assert.NilError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	s := &suite{n: n, cri: runtimeapi.NewRuntimeServiceClient(conn)}
	t.Run("logs", s.testLogs)
	t.Run("noise", s.testNoise)
	t.Run("while the shim is away", s.testAway)
	t.Run("without end", s.testWithoutEnd)
}

// sector pushes an image of a boot sector.
func (s *suite) sector(t *testing.T, name string, disk []byte) (ref string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.img")
	assert.NilError(t, os.WriteFile(path, disk, 0o644))
	img, err := images.RegistryDisk(path, images.DiskOptions{})
	assert.NilError(t, err)
	ref, err = s.n.Push(t.Context(), name+":1", img)
	assert.NilError(t, err)
	return ref
}

// ticking pushes an image of a guest that writes a line each second where the pod has tickingVMI.
func (s *suite) ticking(t *testing.T) (ref string) {
	t.Helper()
	disk, err := guest.Tiny(t.Context(), s.n.GuestOptions())
	assert.NilError(t, err)
	k, err := guest.TinyKernel(t.Context(), s.n.GuestOptions())
	assert.NilError(t, err)
	boot := []images.File{{Name: "boot/vmlinuz", From: k.Image}, {Name: "boot/initrd", From: k.Initrd}}
	img, err := images.RegistryDisk(disk, images.DiskOptions{AsFolder: true, Above: [][]images.File{boot}})
	assert.NilError(t, err)
	ref, err = s.n.Push(t.Context(), "ticking:1", img)
	assert.NilError(t, err)
	return ref
}
