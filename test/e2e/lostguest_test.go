package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestLibvirtdForgetsAGuest: libvirtd loses what it has stored of a domain while it does not run. The guest has its
// disk until its process ends, and no other VM gets the disk. It is not parallel: all tests share libvirtd.
func TestLibvirtdForgetsAGuest(t *testing.T) {
	for name, lose := range map[string]func(status, definition string) error{
		"an empty status":  func(status, _ string) error { return os.Truncate(status, 0) },
		"no status":        func(status, _ string) error { return os.Remove(status) },
		"nothing is known": func(status, definition string) error { return errors.Join(os.Remove(status), os.Remove(definition)) },
	} {
		t.Run(name, func(t *testing.T) {
			device := func(c *runtimeapi.ContainerConfig) {
				c.Devices = append(c.Devices, &runtimeapi.Device{ContainerPath: "/dev/root", HostPath: loopfs.Device(t, 96*mebibyte), Permissions: "mrw"})
			}
			var first *runtimeapi.ContainerConfig
			p := persistent(t, "forgotten")
			vm := p.vm(suite.tiny, device, func(c *runtimeapi.ContainerConfig) { first = c }).start().up()
			vm.post("/cgi-bin/disk", "kept")
			same := func(c *runtimeapi.ContainerConfig) { c.Devices = first.Devices }
			pid, domain := vm.pid(), vm.info().VM.Domain.Name
			t.Cleanup(func() { removeDomainFolders(t, domain) })

			assert.NilError(t, suite.Kill(t.Context(), node.Libvirtd, syscall.SIGKILL))
			assert.NilError(t, lose(
				filepath.Join(suite.Dir(), "run/libvirt/qemu", domain+".xml"), filepath.Join(suite.Dir(), "etc/libvirt/qemu", domain+".xml")))
			assert.NilError(t, suite.Resume(t.Context(), node.Libvirtd))
			wait.Until(t, "the shim sees that libvirt has lost the guest", func() bool { return vm.status().Reason == "StateDisputed" })

			if s := vm.status(); s.State != runtimeapi.ContainerState_CONTAINER_RUNNING || !running(pid) {
				t.Errorf("the container is %s, its process %d runs: %t", s.State, pid, running(pid))
			}
			if got := vm.page("/cgi-bin/disk"); got != "kept" {
				t.Errorf("the guest answers %q", got)
			}
			again := p.vmConfig(suite.tiny)
			same(again)
			again.Metadata.Attempt = 1
			_, err := suite.cri.CreateContainer(t.Context(), p.createRequest(again))
			if status.Code(err) != codes.FailedPrecondition {
				t.Errorf("a second VM in its pod: %v", err)
			}
			other := persistent(t, "other")
			config := other.vmConfig(suite.tiny)
			same(config)
			_, err = suite.cri.CreateContainer(t.Context(), other.createRequest(config))
			if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "in use by another VM") {
				t.Errorf("a second VM on its disk: %v", err)
			}

			vm.stop(10)
			vm.wantEnd(vm.status(), 137, "Error")
			if running(pid) {
				t.Error("its process runs after the stop")
			}
			vm.removeIt()
			next := other.vm(suite.tiny, same).start().up()
			if got := next.page("/cgi-bin/disk"); got != "kept" {
				t.Errorf("the next VM reads %q", got)
			}
		})
	}
}

// removeDomainFolders removes what libvirtd has made for a domain that it has forgotten, as it would before its next
// start.
func removeDomainFolders(t *testing.T, domain string) {
	t.Helper()
	for _, pattern := range []string{
		"libvirt/qemu/domain-*-" + domain[:20] + "*", "libvirt/qemu/channel/target/domain-*-" + domain[:20] + "*",
		"run/libvirt/qemu/channel/*-" + domain[:20] + "*", "run/libvirt/qemu/" + domain + ".*",
	} {
		left, err := filepath.Glob(filepath.Join(suite.Dir(), pattern))
		assert.NilError(t, err)
		for _, path := range left {
			assert.NilError(t, os.RemoveAll(path))
		}
	}
}

// TestRecordOfAGuestIsLost: nothing of a guest that runs is deleted or ended, and its pod is not removed. With its
// record back, the VM is as before. It is not parallel: all tests share the shim.
func TestRecordOfAGuestIsLost(t *testing.T) {
	root := filepath.Join(suite.Dir(), "nodevirt")
	saved := filepath.Join(suite.Dir(), "nodevirt.saved")
	t.Cleanup(func() { assert.NilError(t, os.RemoveAll(saved)) })
	for name, c := range map[string]struct{ lose, restore func(id string) error }{
		"an empty record": {
			func(id string) error {
				path := filepath.Join(root, "containers", id, "record.json")
				return errors.Join(os.Link(path, path+".saved"), os.Remove(path), os.WriteFile(path, nil, 0o600))
			},
			func(id string) error {
				path := filepath.Join(root, "containers", id, "record.json")
				return os.Rename(path+".saved", path)
			},
		},
		"no record": {
			func(id string) error {
				path := filepath.Join(root, "containers", id, "record.json")
				return os.Rename(path, path+".saved")
			},
			func(id string) error {
				path := filepath.Join(root, "containers", id, "record.json")
				return os.Rename(path+".saved", path)
			},
		},
		"an empty root": {
			func(string) error {
				return errors.Join(os.MkdirAll(saved, 0o700), move(root, saved, "containers"), move(root, saved, "sandboxes"))
			},
			func(string) error {
				return errors.Join(os.RemoveAll(filepath.Join(root, "containers")), os.RemoveAll(filepath.Join(root, "sandboxes")),
					move(saved, root, "containers"), move(saved, root, "sandboxes"))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := vmPod(t)
			vm := p.vm(suite.tiny).start().up()
			before := vm.info()
			assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGKILL))
			assert.NilError(t, c.lose(vm.id))
			assert.NilError(t, suite.Resume(t.Context(), node.Shim))

			s := vm.status()
			if s.State != runtimeapi.ContainerState_CONTAINER_UNKNOWN || s.Reason != "RecordRefused" || !strings.Contains(s.Message, "virsh shutdown "+before.VM.Domain.Name) {
				t.Errorf("its status: %s, %s: %s", s.State, s.Reason, s.Message)
			}
			list, err := suite.cri.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: p.id}})
			if err != nil || len(list.Containers) != 1 || list.Containers[0].Id != vm.id {
				t.Errorf("its pod has the containers %v, %v", list.GetContainers(), err)
			}
			_, stop := suite.cri.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id})
			_, remove := suite.cri.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id})
			for call, err := range map[string]error{"stop": stop, "remove": remove} {
				if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "virsh destroy") {
					t.Errorf("%s of its pod: %v", call, err)
				}
			}
			if !running(before.PID) {
				t.Error("its process has ended")
			}
			assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGKILL))
			assert.NilError(t, c.restore(vm.id))
			assert.NilError(t, suite.Resume(t.Context(), node.Shim))
			if after := vm.info(); after.PID != before.PID || vm.status().State != runtimeapi.ContainerState_CONTAINER_RUNNING {
				t.Errorf("with its record back it is %s, process %d", vm.status().State, after.PID)
			}
			vm.up().stop(60)
			vm.wantEnd(vm.status(), 0, "Completed")
		})
	}
}

// TestLostGuestEnds: once a guest without a record has ended, what it left is removed, and so can be its pod.
func TestLostGuestEnds(t *testing.T) {
	vm := vmPod(t).vm(suite.tiny).start().up()
	domain := vm.info().VM.Domain.Name
	assert.NilError(t, suite.Kill(t.Context(), node.Shim, syscall.SIGKILL))
	assert.NilError(t, os.Remove(filepath.Join(suite.Dir(), "nodevirt", "containers", vm.id, "record.json")))
	assert.NilError(t, suite.Resume(t.Context(), node.Shim))
	if s := vm.status(); s.Reason != "RecordRefused" {
		t.Errorf("its status: %s, %s: %s", s.State, s.Reason, s.Message)
	}
	inNode(t, "virsh", "--connect", "qemu:///system", "shutdown", domain)
	wait.Until(t, "the guest ends and the shim forgets it", func() bool {
		_, err := suite.cri.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: vm.id})
		return status.Code(err) == codes.NotFound
	})
	wait.Until(t, "its folder is removed", func() bool {
		_, err := os.Stat(filepath.Join(suite.Dir(), "nodevirt", "containers", vm.id))
		return os.IsNotExist(err)
	})
	assert.NilError(t, os.RemoveAll(filepath.Join(suite.Dir(), "log/libvirt/qemu", domain+".log")))
}

// move moves a folder.
func move(from, to, name string) error {
	return os.Rename(filepath.Join(from, name), filepath.Join(to, name))
}
