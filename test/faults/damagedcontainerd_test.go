//go:build faults

package faults

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/records"
)

// TestContainerdsMetadata damages what containerd knows of pods and images, on a node of the test's own: a containerd
// that starts without it removes its images and snapshots. It starts where the file is missing or empty, and then knows
// no pod. It does not start where it cannot use the file.
func TestContainerdsMetadata(t *testing.T) {
	for _, d := range fileDamages {
		switch d.name {
		case "missing", "empty":
			t.Run(d.name, func(t *testing.T) { forgetsPods(t, d) })
		case "truncated", "garbage", "unreadable":
			t.Run(d.name, func(t *testing.T) { waitsForMetadata(t, d) })
		}
	}
}

// onOwnNode starts a VM on a node of the test's own.
func onOwnNode(t *testing.T) *round {
	t.Helper()
	device, files := loopfs.Device(t, records.DiskBytes), t.TempDir() // removed after the node
	borrowSuite(t)
	p, err := newPod("metadata", suite.halt, 64<<20)
	assert.NilError(t, err)
	p.withVolumes(device, files)
	r := &round{plan: plan{calls: life}, pod: p, begun: time.Now()}
	r.does(t, life[:started]...)
	t.Cleanup(func() { killAll(r.domain()) })
	return r
}

func metadata() string {
	return filepath.Join(suite.Dir(), "containerd/io.containerd.metadata.v1.bolt/meta.db")
}

// forgetsPods: VMs run on and are shown, and a kubelet that makes the pod again starts no second QEMU on its disks. The
// administrator ends them.
func forgetsPods(t *testing.T, d damage) {
	r := onOwnNode(t)
	before := processes(r.domain())
	r.loses(t, node.Containerd, node.Shim)
	_, err := d.do(t.Context(), metadata(), nil, nil)
	assert.NilError(t, err)
	assert.NilError(t, resume(t.Context(), node.Containerd, node.Shim))
	assert.NilError(t, converge(t.Context(), r.isTrue))

	assert.NilError(t, push(t.Context()))
	next := &round{plan: r.plan, pod: &pod{name: r.name, config: proto.CloneOf(r.config), guest: proto.CloneOf(r.guest)}, begun: time.Now()}
	next.config.Metadata.Attempt++
	next.guest.Metadata.Attempt++ // the former container has its name
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, c := range life[:started] {
		if err = c.do(ctx, next.pod); err != nil {
			break
		}
	}
	if now := processes(r.domain()); err == nil || !slices.Equal(now, before) {
		t.Errorf("its QEMU was %v and is %v; the next attempt: %v", before, now, err)
	}
	t.Logf("the next attempt: %v", err)
	assert.NilError(t, exclusive())

	r.does(t, life[ending:podEnd]...)
	if runs(r.domain()) {
		t.Error("QEMU runs after its container was removed")
	}
	assert.NilError(t, next.remove(t.Context()))
}

// waitsForMetadata: VMs run on without containerd. When it has its metadata again all is as before.
func waitsForMetadata(t *testing.T, d damage) {
	r := onOwnNode(t)
	before := processes(r.domain())
	r.loses(t, node.Containerd)
	whole, err := os.ReadFile(outside(metadata()))
	assert.NilError(t, err)
	undo, err := d.do(t.Context(), metadata(), whole, nil)
	assert.NilError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	err = suite.Resume(ctx, node.Containerd)
	cancel()
	assert.ErrorContains(t, err, node.Containerd)
	if now := processes(r.domain()); !slices.Equal(now, before) {
		t.Errorf("without containerd its QEMU was %v and is %v", before, now)
	}
	_ = suite.Kill(t.Context(), node.Containerd, syscall.SIGKILL) // it may still try
	assert.NilError(t, undo(t.Context()))
	assert.NilError(t, resume(t.Context(), node.Containerd))
	assert.NilError(t, converge(t.Context(), r.isTrue))
	if now := processes(r.domain()); !slices.Equal(now, before) {
		t.Errorf("with containerd's metadata its QEMU was %v and is %v", before, now)
	}
	assert.NilError(t, r.remove(t.Context()))
}
