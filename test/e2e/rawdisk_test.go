package e2e

import (
	"maps"
	"os"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vminfo"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestRawDisk: a guest runs from a separate raw file, which is sparse and goes with it, and does
// not change its image.
func TestRawDisk(t *testing.T) {
	t.Parallel()
	before := snapshotFiles(t)
	p := vmPod(t, annotated(map[string]string{vmspec.AnnotationDiskMode: "disk=raw"}))
	c := p.vm(suite.tiny).start().up()
	c.post("/cgi-bin/disk", "mine")
	if got := c.page("/cgi-bin/disk"); got != "mine" {
		t.Errorf("the disk holds %q", got)
	}
	disks := c.vmInfo().Disks
	if len(disks) != 1 || disks[0].Format != "raw" || disks[0].Mode != vmspec.ModeRaw {
		t.Fatalf("the disks are %+v", disks)
	}
	info, err := os.Stat(disks[0].Path)
	assert.NilError(t, err)
	st := info.Sys().(*syscall.Stat_t)
	if size := disks[0].Image.VirtualSize; info.Size() != size || st.Blocks*512 >= size || info.Mode().Perm() != 0o600 || st.Uid != 0 {
		t.Errorf("a disk of %d bytes is %v of %d bytes, %d on disk", size, info.Mode(), info.Size(), st.Blocks*512)
	}
	c.stop(60)
	c.removeIt()
	if _, err := os.Stat(disks[0].Path); !os.IsNotExist(err) {
		t.Errorf("the removed container's disk: %v", err)
	}
	after := snapshotFiles(t)
	maps.DeleteFunc(after, func(path, _ string) bool { return before[path] == "" }) // of images that came meanwhile
	if !maps.Equal(after, before) {
		t.Errorf("before:\n%v\nafter:\n%v", before, after)
	}
}

// vmInfo returns what the shim reports of a VM beyond its status.
func (c *container) vmInfo() *vminfo.VM {
	c.t.Helper()
	reply, err := suite.cri.ContainerStatus(c.t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: c.id, Verbose: true})
	assert.NilError(c.t, err)
	info, err := vminfo.Read(reply.Info)
	assert.NilError(c.t, err)
	return info.VM
}
