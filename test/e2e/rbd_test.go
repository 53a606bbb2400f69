//go:build ceph

package e2e

import (
	"context"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/ceph"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// startsWithin is how soon a start must fail, and say why. QEMU would wait for minutes.
const startsWithin = 30 * time.Second

// TestRBD is not parallel: it stops Ceph's daemons, and others of the node.
func TestRBD(t *testing.T) {
	c := rbdCluster{ceph.ForTest(t, suite.Node)}
	// All VMs share librados' configuration, so that the last one leaves it.
	t.Cleanup(func() { assert.NilError(t, os.RemoveAll(filepath.Join(suite.Dir(), "run/nodevirt/ceph"))) })
	t.Run("kept", c.kept)
	t.Run("killed", c.killed)
	t.Run("shared", c.shared)
	t.Run("refused", c.refused)
	t.Run("monitor away", c.monitorAway)
	t.Run("outages", c.outages)
}

// rbdCluster is Ceph, and the tests' way to it.
type rbdCluster struct{ *ceph.Cluster }

// image imports a guest's disk.
func (c rbdCluster) image(t *testing.T, name string, of func(context.Context, guest.Options) (string, error)) {
	t.Helper()
	path, err := of(t.Context(), suite.GuestOptions())
	assert.NilError(t, err)
	assert.NilError(t, c.Import(t.Context(), name, "qcow2", path))
}

// disk is the PVC on an image, as the controller describes it.
func (rbdCluster) disk(pvc, image string) vmspec.NetworkDisk {
	return vmspec.NetworkDisk{
		PVC: pvc, Volume: "pv-" + pvc, SecretName: "ceph", SecretMount: "root-ceph",
		RBD: &vmspec.RBDVolume{Monitors: []string{ceph.Address}, Pool: ceph.Pool, Image: image, User: ceph.User},
	}
}

// secret mounts the key of the cluster's user.
func (c rbdCluster) secret(t *testing.T) func(*runtimeapi.ContainerConfig) {
	t.Helper()
	return cephSecret(t, c.Key)
}

func cephSecret(t *testing.T, key string) func(*runtimeapi.ContainerConfig) {
	t.Helper()
	return mountsSecret(t, "root-ceph", map[string]string{"key": key})
}

// keepsKey looks for the key where others could read it, encoded and decoded.
func (c rbdCluster) keepsKey(t *testing.T, of *container) {
	t.Helper()
	decoded, err := base64.StdEncoding.DecodeString(c.Key)
	assert.NilError(t, err)
	of.keepsSecret(c.Key)
	of.keepsSecret(string(decoded))
}

// kept: a VM boots from an image, and keeps its data. Another VM of the node is refused the image
// meanwhile. Nothing shows the key.
func (c rbdCluster) kept(t *testing.T) {
	c.image(t, "kept", guest.Tiny)
	first := onNetwork(t, "first", virtioDisk, c.disk("data", "kept")).vm(suite.tiny, c.secret(t)).start().up()
	first.post("/cgi-bin/disk", "kept")
	xml := inNode(t, "virsh", "dumpxml", first.info().VM.Domain.Name)
	for _, want := range []string{"protocol='rbd' name='vms/kept'", "<host name='127.0.0.9' port='3300'/>", "<auth username='guests'>"} {
		if !strings.Contains(xml, want) {
			t.Errorf("the XML has no %s:\n%s", want, xml)
		}
	}
	c.keepsKey(t, first)
	other := onNetwork(t, "other", virtioDisk, c.disk("alias", "kept"))
	config := other.vmConfig(suite.tiny)
	c.secret(t)(config)
	_, err := suite.cri.CreateContainer(t.Context(), other.createRequest(config))
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "PVC alias") || !strings.Contains(err.Error(), "in use by another VM") {
		t.Errorf("a second VM on the image: %v", err)
	}
	first.stop(60)
	first.removeIt()
	if left := inNode(t, "virsh", "secret-list"); strings.Contains(left, first.id) {
		t.Errorf("left:\n%s", left)
	}
	next := other.vm(suite.tiny, c.secret(t)).start().up()
	if got := next.page("/cgi-bin/disk"); got != "kept" {
		t.Errorf("another VM reads %q from the image", got)
	}
	next.stop(60)
}

// killed: the next VM gets the image from a QEMU that was killed and could not release RBD's lock.
func (c rbdCluster) killed(t *testing.T) {
	c.image(t, "killed", guest.Tiny)
	first := onNetwork(t, "first", virtioDisk, c.disk("data", "killed")).vm(suite.tiny, c.secret(t)).start().up()
	first.post("/cgi-bin/disk", "flushed")
	first.kill()
	first.ended()
	next := onNetwork(t, "next", virtioDisk, c.disk("data", "killed")).vm(suite.tiny, c.secret(t)).start().up()
	if got := next.page("/cgi-bin/disk"); got != "flushed" {
		t.Errorf("the next VM reads %q from the image", got)
	}
	next.post("/cgi-bin/disk", "again")
	if got := next.page("/cgi-bin/disk"); got != "again" {
		t.Errorf("the next VM then reads %q from the image", got)
	}
	next.stop(60)
}

// shared: two VMs use the image of a PVC that is ReadWriteMany.
func (c rbdCluster) shared(t *testing.T) {
	c.image(t, "shared", guest.TinyWithAgent)
	disk := c.disk("data", "shared")
	disk.Shared = true
	const device = virtioDisk + `, "shareable": true`
	var both []*container
	for _, name := range []string{"first", "second"} {
		vm := onNetwork(t, name, device, disk).vm(suite.agent, c.secret(t)).start().up()
		vm.agentIs(agent.Present)
		both = append(both, vm)
	}
	// The last blocks of 64 MiB, which the file system does not use.
	if got := both[0].tries("echo 'from the first' | dd of=/dev/vda bs=4k seek=16380 conv=sync,fsync"); got != "done" {
		t.Fatalf("the first VM writes: %s", got)
	}
	if got := both[1].tries("dd if=/dev/vda bs=4k count=1 skip=16380 iflag=direct | grep -q 'from the first'"); got != "done" {
		t.Errorf("the second VM reads what the first one wrote: %s", got)
	}
	for _, vm := range both {
		vm.stop(60)
	}
}

// refused: errors name the PVC and what to look at, soon, and no key.
func (c rbdCluster) refused(t *testing.T) {
	c.image(t, "refused", guest.Tiny)
	const wrong = "AQBjb3VudC1vbi1tZS10by1iZS1jaGFuZ2VkIQ=="
	stranger := c.disk("stranger", "refused")
	stranger.RBD.User = "stranger"
	elsewhere := c.disk("elsewhere", "refused")
	elsewhere.RBD.Pool = "elsewhere"
	for name, tt := range map[string]struct {
		disk vmspec.NetworkDisk
		key  string
		want []string
	}{
		"key":   {c.disk("locked", "refused"), wrong, []string{"PVC locked", "RBD image vms/refused", "Secret ceph", "accepts these credentials"}},
		"user":  {stranger, c.Key, []string{"PVC stranger", "Secret ceph", "accepts these credentials"}},
		"image": {c.disk("gone", "no-image"), c.Key, []string{"PVC gone", "RBD image vms/no-image", "check that the disk exists"}},
		"pool":  {elsewhere, c.Key, []string{"PVC elsewhere", "RBD image elsewhere/refused", "check that the disk exists"}},
	} {
		t.Run(name, func(t *testing.T) {
			vm := onNetwork(t, name, virtioDisk, tt.disk).vm(suite.tiny, cephSecret(t, tt.key))
			vm.failsSoon(tt.want...)
			vm.keepsSecretOf(tt.key, "")
		})
	}
}

// failsSoon starts a VM that must fail with words.
func (c *container) failsSoon(want ...string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), startsWithin)
	defer cancel()
	_, err := suite.cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.id})
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			c.t.Errorf("%v; want %q", err, w)
		}
	}
	if s := c.status(); s.ExitCode != 128 || s.Reason != "StartError" {
		c.t.Errorf("the container is %v", s)
	}
}

// monitorAway: while the monitor is away or hangs, new VMs fail soon, and running ones read and write.
func (c rbdCluster) monitorAway(t *testing.T) {
	c.image(t, "running", guest.TinyWithAgent)
	c.image(t, "starting", guest.Tiny)
	running := onNetwork(t, "running", virtioDisk, c.disk("running", "running")).vm(suite.agent, c.secret(t), larger).start().up()
	running.agentIs(agent.Present)
	w := running.writes(running.guest().Disks[0].Size)
	starting := func(name string) *container {
		return onNetwork(t, name, virtioDisk, c.disk("starting", "starting")).vm(suite.tiny, c.secret(t))
	}
	early, late := starting("ended"), starting("hangs")

	assert.NilError(t, signalDaemon(t.Context(), ceph.Monitor, syscall.SIGSTOP))
	late.failsSoon("PVC starting", "RBD image vms/starting")
	w.goesOn("while the monitor hangs")
	assert.NilError(t, signalDaemon(t.Context(), ceph.Monitor, syscall.SIGCONT))

	assert.NilError(t, suite.Kill(t.Context(), ceph.Monitor, syscall.SIGKILL))
	early.failsSoon("PVC starting", "no portal answers")
	p := onNetwork(t, "created", virtioDisk, c.disk("starting", "starting"))
	config := p.vmConfig(suite.tiny)
	c.secret(t)(config)
	_, err := suite.cri.CreateContainer(t.Context(), p.createRequest(config))
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "PVC starting") || !strings.Contains(err.Error(), "no portal answers") {
		t.Errorf("without the monitor: %v", err)
	}
	w.goesOn("without the monitor")
	assert.NilError(t, suite.Resume(t.Context(), ceph.Monitor))
	w.goesOn("with the monitor")
	p.create(config).start().up().stop(60)
	w.end()
	running.stop(60)
}

// larger gives a guest memory for what it writes.
func larger(c *runtimeapi.ContainerConfig) { c.Linux.Resources.MemoryLimitInBytes = 256 * mebibyte }

// outages: a guest waits while the OSD is away, as long as that may be, and goes on when it is back.
// Nothing that it flushed is lost.
func (c rbdCluster) outages(t *testing.T) {
	t.Run("no cache", func(t *testing.T) { c.outage(t, "plain", "") })
	t.Run("cache", func(t *testing.T) { c.outage(t, "cached", `, "cache": "writeback"`) })
}

func (c rbdCluster) outage(t *testing.T, image, cache string) {
	c.image(t, image, guest.TinyWithAgent)
	vm := onNetwork(t, "guest", virtioDisk+cache, c.disk("data", image)).vm(suite.agent, c.secret(t), larger).start().up()
	vm.agentIs(agent.Present)
	pid := vm.pid()
	w := vm.writes(vm.guest().Disks[0].Size)
	kill := func(names ...string) {
		t.Helper()
		for _, name := range names {
			assert.NilError(t, suite.Kill(t.Context(), name, syscall.SIGKILL))
		}
	}
	resume := func(names ...string) {
		t.Helper()
		for _, name := range names {
			assert.NilError(t, suite.Resume(t.Context(), name))
		}
	}
	for range 3 { // shorter than the limits of librados
		kill(ceph.OSD)
		resume(ceph.OSD)
		w.goesOn("with the OSD")
	}
	kill(ceph.OSD) // longer: requests fail, and the shim makes the guest repeat them at once
	wait.Until(t, "the guest is stopped", func() bool {
		return strings.Contains(suite.LogOf(node.Shim, vm.id, 100), "the guest is stopped, since its disk fails")
	})
	kill(ceph.Monitor, node.Shim, node.Libvirtd)
	resume(node.Libvirtd, node.Shim)
	wait.Until(t, "libvirtd has the secret again", func() bool {
		return strings.Contains(inNode(t, "virsh", "secret-list"), vm.id)
	})
	resume(ceph.Monitor, ceph.OSD)
	w.goesOn("with all of it")
	wait.Until(t, "the guest is not stopped", func() bool { return vm.vmInfo().Paused == "" })
	w.end()
	if got := vm.pid(); got != pid {
		t.Errorf("QEMU's process was %d and is %d", pid, got)
	}
	c.keepsKey(t, vm)
	vm.stop(60)
}
