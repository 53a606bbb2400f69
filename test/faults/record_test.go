//go:build faults

package faults

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/node"
)

// shimRoot is a path below the shim's root, as the machine sees it.
func shimRoot(elem ...string) string {
	return filepath.Join(append([]string{filepath.Dir(filling())}, elem...)...)
}

// TestBrokenRecords breaks records of two pods. Other pods are not affected, and the VM
// can be removed as docs/node.md says.
func TestBrokenRecords(t *testing.T) {
	r := begin(t)
	r.does(t, life[:started]...)
	other := r.beside(t, "other")
	other.does(t, life[:started]...)
	record := shimRoot("containers", r.container, "record.json")
	assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGKILL))
	whole, err := os.ReadFile(record)
	assert.NilError(t, err)
	half := whole[:bytes.Index(whole, []byte(`"domain"`))]
	assert.NilError(t, os.WriteFile(record, half, 0o600))
	assert.NilError(t, os.WriteFile(shimRoot("sandboxes", other.id+".json"), []byte("garbage"), 0o600))
	assert.NilError(t, resume(t.Context(), node.Shim))

	assert.NilError(t, answers(t.Context()))
	for _, g := range suite.steady {
		assert.NilError(t, g.lives(t.Context()))
	}
	assert.NilError(t, other.look(t.Context())) // by a new record
	if list, err := r.containers(t.Context()); err != nil || len(list) != 1 || list[0] != r.container {
		t.Errorf("of the pod there are the containers %q, %v", list, err)
	}
	reply, err := suite.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: r.container})
	assert.NilError(t, err)
	if s := reply.GetStatus(); s.GetState() != runtimeapi.ContainerState_CONTAINER_UNKNOWN ||
		s.GetReason() != "RecordRefused" || !strings.Contains(s.GetMessage(), "it is truncated") {
		t.Errorf("its status: %v", s)
	}
	log := suite.LogTail(node.Shim, math.MaxInt)
	for _, want := range []string{"containers/" + r.container + "/record.json", "record is broken: it is truncated", "broken/" + other.id + ".json"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log does not have %q", want)
		}
	}
	// Nothing of the VM changes, and its pod holds no second one.
	for _, c := range []call{life[1], life[ending], life[ending+1], life[podEnd]} {
		again := *r.pod
		if err := c.do(t.Context(), &again); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if now, err := os.ReadFile(record); err != nil || !bytes.Equal(now, half) {
		t.Errorf("the record was changed: %v", err)
	}

	r.removeByHand(t)
	assert.NilError(t, os.RemoveAll(shimRoot("broken", other.id+".json")))
	assert.NilError(t, suite.Restart(t.Context(), node.Shim))
	assert.NilError(t, redial())
}

// removeByHand removes a VM whose record cannot be used, as docs/node.md says.
func (r *round) removeByHand(t *testing.T) {
	t.Helper()
	domain := "default_" + r.name + "_" + r.container[:12]
	for _, verb := range []string{"destroy", "undefine"} {
		_, err := suite.Output(t.Context(), "virsh", "--connect", "qemu:///system", verb, domain)
		assert.NilError(t, err)
	}
	assert.NilError(t, os.Remove(suite.Dir()+"/log/libvirt/qemu/"+domain+".log"))
	assert.NilError(t, os.RemoveAll(shimRoot("containers", r.container)))
	r.container = "" // its cgroup goes with the pod's, as the kubelet removes it
}

// TestUnmadeContainerThatStays has the shim find a container that was not made, and
// whose folder can't be removed at once. When it can, its name is free again,
// without another start of the shim.
func TestUnmadeContainerThatStays(t *testing.T) {
	r := begin(t)
	r.does(t, life[:started-1]...)
	assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGKILL))
	dir := filepath.Join(suite.Dir(), "nodevirt/containers", r.container)
	record := shimRoot("containers", r.container, "record.json")
	text, err := os.ReadFile(record)
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(record, bytes.Replace(text, []byte(`"created"`), []byte(`"creating"`), 1), 0o600))
	_, err = suite.Output(t.Context(), "mount", "--bind", "/dev/null", filepath.Join(dir, "disk.qcow2"))
	assert.NilError(t, err)
	assert.NilError(t, resume(t.Context(), node.Shim))

	if err := life[1].do(t.Context(), r.pod); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("beside a container that can't be removed: %v", err)
	}
	_, err = suite.Output(t.Context(), "umount", filepath.Join(dir, "disk.qcow2"))
	assert.NilError(t, err)
	assert.NilError(t, converge(t.Context(), func(ctx context.Context) error { return life[1].do(ctx, r.pod) }))
	r.does(t, life[2])
}

// TestLibvirtdDoesNotComeBack ends a VM without it, as docs/node.md says.
func TestLibvirtdDoesNotComeBack(t *testing.T) {
	r := begin(t)
	r.does(t, life[:started]...)
	r.loses(t, node.Libvirtd)
	for _, c := range life[ending:podEnd] {
		if err := c.do(t.Context(), r.pod); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "docs/node.md") {
			t.Errorf("%s without libvirtd: %v", c.name, err)
		}
	}
	assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGTERM))
	if !killAll(r.domain()) {
		t.Fatal("QEMU did not run")
	}
	assert.NilError(t, os.RemoveAll(shimRoot("containers", r.container)))
	assert.NilError(t, resume(t.Context(), node.Shim))
	r.does(t, life[podEnd:]...)

	assert.NilError(t, resume(t.Context(), node.Libvirtd)) // the shim has libvirt forget the domain
	assert.NilError(t, os.Remove(suite.Dir()+"/log/libvirt/qemu/default_"+r.name+"_"+r.container[:12]+".log"))
	r.container = "" // its cgroup goes with the pod's, as the kubelet removes it
}
