package csi

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/loopdev"
)

const (
	writer = spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	many   = spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	size   = 16 << 20
)

// rig has the driver's parts, without a socket, and two nodes.
type rig struct {
	*testing.T
	*controller
	nodes map[string]*node
	dir   string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	dir := t.TempDir()
	s := state{
		volumes:   store[volume]{filepath.Join(dir, "volumes")},
		snapshots: store[snapshot]{filepath.Join(dir, "snapshots")},
		nodes:     filepath.Join(dir, "nodes"),
	}
	r := &rig{t, &controller{state: s, busy: newBusy()}, map[string]*node{}, dir}
	for _, folder := range []string{s.volumes.dir, s.snapshots.dir} {
		assert.NilError(t, os.MkdirAll(folder, 0o700))
	}
	for _, name := range []string{"node-1", "node-2"} {
		r.nodes[name] = &node{state: s, name: name, busy: newBusy()}
		assert.NilError(t, r.nodes[name].announce())
	}
	t.Cleanup(func() { assert.NilError(t, Release(dir)) })
	return r
}

func block(mode spec.VolumeCapability_AccessMode_Mode) *spec.VolumeCapability {
	return &spec.VolumeCapability{
		AccessType: &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}},
		AccessMode: &spec.VolumeCapability_AccessMode{Mode: mode},
	}
}

func files(mode spec.VolumeCapability_AccessMode_Mode) *spec.VolumeCapability {
	return &spec.VolumeCapability{
		AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}},
		AccessMode: &spec.VolumeCapability_AccessMode{Mode: mode},
	}
}

// create makes a volume of size bytes, or of more.
func (r *rig) create(name string, way *spec.VolumeCapability, bytes int64, from *spec.VolumeContentSource) string {
	r.Helper()
	v, err := r.CreateVolume(r.Context(), &spec.CreateVolumeRequest{
		Name: name, VolumeCapabilities: []*spec.VolumeCapability{way}, VolumeContentSource: from,
		CapacityRange: &spec.CapacityRange{RequiredBytes: bytes},
	})
	assert.NilError(r, err)
	return v.Volume.VolumeId
}

func (r *rig) attach(volume, on string, way *spec.VolumeCapability) (device string, err error) {
	reply, err := r.ControllerPublishVolume(r.Context(), &spec.ControllerPublishVolumeRequest{
		VolumeId: volume, NodeId: on, VolumeCapability: way,
	})
	return reply.GetPublishContext()[deviceKey], err
}

func (r *rig) detach(volume, on string) error {
	_, err := r.ControllerUnpublishVolume(r.Context(), &spec.ControllerUnpublishVolumeRequest{VolumeId: volume, NodeId: on})
	return err
}

// show stages and publishes a volume, and returns the path where it is.
func (r *rig) show(volume, on, device string, way *spec.VolumeCapability, target string) (path string, err error) {
	staging := filepath.Join(r.dir, on+"-staging-"+volume)
	assert.NilError(r, os.MkdirAll(staging, 0o700))
	published := map[string]string{deviceKey: device}
	if _, err := r.nodes[on].NodeStageVolume(r.Context(), &spec.NodeStageVolumeRequest{
		VolumeId: volume, StagingTargetPath: staging, VolumeCapability: way, PublishContext: published,
	}); err != nil {
		return "", err
	}
	path = filepath.Join(r.dir, on+"-"+target)
	_, err = r.nodes[on].NodePublishVolume(r.Context(), &spec.NodePublishVolumeRequest{
		VolumeId: volume, StagingTargetPath: staging, TargetPath: path, VolumeCapability: way, PublishContext: published,
	})
	if err == nil {
		r.Cleanup(func() { assert.NilError(r, errors.Join(unmount(path), unmount(staging))) })
	}
	return path, err
}

func (r *rig) snapshot(name, volume string) *spec.VolumeContentSource {
	r.Helper()
	s, err := r.CreateSnapshot(r.Context(), &spec.CreateSnapshotRequest{Name: name, SourceVolumeId: volume})
	assert.NilError(r, err)
	return &spec.VolumeContentSource{Type: &spec.VolumeContentSource_Snapshot{
		Snapshot: &spec.VolumeContentSource_SnapshotSource{SnapshotId: s.Snapshot.SnapshotId},
	}}
}

func (r *rig) expand(volume string, bytes int64) {
	r.Helper()
	_, err := r.ControllerExpandVolume(r.Context(), &spec.ControllerExpandVolumeRequest{
		VolumeId: volume, CapacityRange: &spec.CapacityRange{RequiredBytes: bytes},
	})
	assert.NilError(r, err)
}

func sizeOf(t *testing.T, device string) int64 {
	t.Helper()
	f, err := os.Open(device)
	assert.NilError(t, err)
	defer f.Close()
	end, err := f.Seek(0, io.SeekEnd)
	assert.NilError(t, err)
	return end
}

// TestBlock: a snapshot and a clone have what was written to the device before, and nothing that came
// after; a device grows while it is open; a single node has it.
func TestBlock(t *testing.T) {
	r := newRig(t)
	v := r.create("block", block(writer), size, nil)
	device, err := r.attach(v, "node-1", block(writer))
	assert.NilError(t, err)
	_, err = r.attach(v, "node-2", block(writer))
	assert.Equal(t, status.Code(err), codes.FailedPrecondition)
	path, err := r.show(v, "node-1", device, block(writer), "target")
	assert.NilError(t, err)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	assert.NilError(t, err)
	defer f.Close()
	before, after := bytes.Repeat([]byte("before"), 1000), bytes.Repeat([]byte("after."), 1000)
	_, err = f.WriteAt(before, size/2) // and no flush
	assert.NilError(t, err)
	from := r.snapshot("snapshot", v)
	clone := r.create("clone", block(writer), size, &spec.VolumeContentSource{Type: &spec.VolumeContentSource_Volume{
		Volume: &spec.VolumeContentSource_VolumeSource{VolumeId: v},
	}})
	_, err = f.WriteAt(after, size/2)
	assert.NilError(t, err)
	for _, copied := range []string{clone, r.create("restored", block(writer), 2*size, from)} {
		device, err := r.attach(copied, "node-2", block(writer))
		assert.NilError(t, err)
		data, err := os.ReadFile(device)
		assert.NilError(t, err)
		assert.Assert(t, bytes.Equal(bytes.Trim(data, "\x00"), before))
		assert.Assert(t, bytes.Equal(data[size/2:size/2+len(before)], before))
		assert.NilError(t, r.detach(copied, "node-2"))
	}
	r.expand(v, 2*size)
	assert.Equal(t, sizeOf(t, path), int64(2*size))
	_, err = r.DeleteVolume(t.Context(), &spec.DeleteVolumeRequest{VolumeId: v})
	assert.Equal(t, status.Code(err), codes.FailedPrecondition)
	// A device that is in use stays attached to its node.
	assert.ErrorIs(t, r.detach(v, "node-1"), loopdev.ErrUsed)
	assert.NilError(t, f.Close())
	assert.NilError(t, r.detach(v, "node-1"))
}

// TestShared: two nodes have one device, and each sees at once what the other wrote.
func TestShared(t *testing.T) {
	r := newRig(t)
	v := r.create("shared", block(many), size, nil)
	first, err := r.attach(v, "node-1", block(many))
	assert.NilError(t, err)
	second, err := r.attach(v, "node-2", block(many))
	assert.NilError(t, err)
	assert.Equal(t, first, second)
	assert.NilError(t, r.detach(v, "node-1"))
	assert.Equal(t, sizeOf(t, second), int64(size))
	assert.NilError(t, r.detach(v, "node-2"))
}

// TestSharedFiles: two nodes mount one file system, which the first has made. Each sees at once what the other wrote,
// and its locks; the one that remains keeps all of it.
func TestSharedFiles(t *testing.T) {
	r := newRig(t)
	v := r.create("shared-files", files(many), size, nil)
	paths := map[string]string{}
	for _, on := range []string{"node-1", "node-2"} {
		device, err := r.attach(v, on, files(many))
		assert.NilError(t, err)
		paths[on], err = r.show(v, on, device, files(many), "target")
		assert.NilError(t, err)
	}
	assert.NilError(t, os.WriteFile(filepath.Join(paths["node-1"], "file"), []byte("written"), 0o600))
	text, err := os.ReadFile(filepath.Join(paths["node-2"], "file"))
	assert.NilError(t, err)
	assert.Equal(t, string(text), "written")
	var locked [2]*os.File
	for i, on := range []string{"node-1", "node-2"} {
		locked[i], err = os.Open(filepath.Join(paths[on], "file"))
		assert.NilError(t, err)
		defer locked[i].Close()
	}
	assert.NilError(t, unix.Flock(int(locked[0].Fd()), unix.LOCK_EX))
	assert.ErrorIs(t, unix.Flock(int(locked[1].Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
	assert.NilError(t, locked[0].Close())
	assert.NilError(t, unmount(paths["node-1"]))
	_, err = r.nodes["node-1"].NodeUnstageVolume(t.Context(), &spec.NodeUnstageVolumeRequest{
		VolumeId: v, StagingTargetPath: filepath.Join(r.dir, "node-1-staging-"+v),
	})
	assert.NilError(t, err)
	assert.NilError(t, r.detach(v, "node-1"))
	text, err = os.ReadFile(filepath.Join(paths["node-2"], "file"))
	assert.NilError(t, err)
	assert.Equal(t, string(text), "written")
}

// TestFiles: a file system grows while it is mounted, and a larger copy of its snapshot has its files and
// fills its device. A volume of a single writer has one path.
func TestFiles(t *testing.T) {
	const single = spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	r := newRig(t)
	v := r.create("files", files(single), size, nil)
	device, err := r.attach(v, "node-1", files(single))
	assert.NilError(t, err)
	path, err := r.show(v, "node-1", device, files(single), "target")
	assert.NilError(t, err)
	_, err = r.show(v, "node-1", device, files(single), "other")
	assert.Equal(t, status.Code(err), codes.FailedPrecondition)
	assert.NilError(t, os.WriteFile(filepath.Join(path, "file"), []byte("kept"), 0o600))
	r.expand(v, 2*size)
	_, err = r.nodes["node-1"].NodeExpandVolume(t.Context(), &spec.NodeExpandVolumeRequest{VolumeId: v, VolumePath: path})
	assert.NilError(t, err)
	assert.Assert(t, total(r, v, "node-1", path) > size*3/2)

	restored := r.create("restored", files(writer), 4*size, r.snapshot("snapshot", v))
	device, err = r.attach(restored, "node-2", files(writer))
	assert.NilError(t, err)
	path, err = r.show(restored, "node-2", device, files(writer), "target")
	assert.NilError(t, err)
	text, err := os.ReadFile(filepath.Join(path, "file"))
	assert.NilError(t, err)
	assert.Equal(t, string(text), "kept")
	assert.Assert(t, total(r, restored, "node-2", path) > size*3)
}

// total is the size of the file system at a path.
func total(r *rig, volume, on, path string) int64 {
	r.Helper()
	s, err := r.nodes[on].NodeGetVolumeStats(r.Context(), &spec.NodeGetVolumeStatsRequest{VolumeId: volume, VolumePath: path})
	assert.NilError(r, err)
	return s.Usage[0].Total
}

// TestRelease: no device of a volume is left, though a node has the volume, and a kubelet another device on
// it.
func TestRelease(t *testing.T) {
	r := newRig(t)
	v := r.create("held", block(writer), size, nil)
	device, err := r.attach(v, "node-1", block(writer))
	assert.NilError(t, err)
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	assert.NilError(t, err)
	held, err := loopdev.Attach(f, 0)
	assert.NilError(t, errors.Join(err, f.Close()))
	assert.NilError(t, held.Close())
	assert.NilError(t, Release(r.dir))
	left, err := loopdev.Of(r.volumes.data(v))
	assert.NilError(t, err)
	assert.Equal(t, len(left), 0)
	left, err = loopdev.Of(device)
	assert.NilError(t, err)
	assert.Equal(t, len(left), 0)
}
