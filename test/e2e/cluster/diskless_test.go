//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/wait"
)

// withoutVolumes is an instance without disks and volumes, as KubeVirt accepts them.
func withoutVolumes(name string, domain object) object {
	domain["memory"] = object{"guest": "128Mi"}
	return object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": object{"name": name},
		"spec": object{"terminationGracePeriodSeconds": 0, "domain": domain},
	}
}

// imageOf returns the image of an instance's pod.
func imageOf(t *testing.T, instance string) string {
	t.Helper()
	return kubectl(t, "get", "pods", "--selector="+byName+"="+instance, "-o", "jsonpath={.items[0].spec.containers[0].image}")
}

// controllersImage returns the image that the controller's Deployment names.
func controllersImage(t *testing.T) string {
	t.Helper()
	return kubectl(t, "--namespace=nodevirt", "get", "deployment", "nodevirt-controller",
		"-o", "jsonpath={.spec.template.spec.containers[0].image}")
}

// TestAnInstanceWithoutADisk runs a VM that has nothing to boot from. Its pod has the controller's
// image, though no administrator has said so.
func TestAnInstanceWithoutADisk(t *testing.T) {
	t.Parallel()
	name := made(t, withoutVolumes("diskless", object{"devices": object{}}))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={.status.phase}=Running"))
	if got, want := imageOf(t, name), controllersImage(t); got != want {
		t.Errorf("the pod's image is %q, the controller's %q", got, want)
	}
	pod := kubectl(t, "get", "pods", "--selector="+byName+"="+name, "-o", "jsonpath={.items[0].metadata.name}")
	if state := strings.TrimSpace(virsh(t, "domstate", pod)); state != "running" {
		t.Errorf("the domain is %s", state)
	}
	if xml := virsh(t, "dumpxml", pod); strings.Contains(xml, "<disk ") {
		t.Errorf("the VM has a disk:\n%s", xml)
	}
}

// kernelImage is an image that has a kernel and no disk.
func kernelImage(t *testing.T) v1.Image {
	t.Helper()
	k, err := guest.TinyKernel(t.Context(), suite.Control().GuestOptions())
	assert.NilError(t, err)
	img, err := images.FromFiles(v1.Config{}, images.Layer{Files: []images.File{
		{Name: "boot/"}, {Name: "boot/vmlinuz", From: k.Image}, {Name: "boot/initrd", From: k.Initrd},
	}})
	assert.NilError(t, err)
	return img
}

// ofKernel is an instance of a kernel alone, in the image that a container of kernelBoot names.
func ofKernel(name string, container object) object {
	container["kernelPath"], container["initrdPath"] = "/boot/vmlinuz", "/boot/initrd"
	return withoutVolumes(name, object{
		"devices":  object{},
		"firmware": object{"kernelBoot": object{"kernelArgs": guest.Cmdline, "container": container}},
	})
}

// TestAnInstanceOfAKernel boots from an image that has a kernel and no disk.
func TestAnInstanceOfAKernel(t *testing.T) {
	t.Parallel()
	ref, err := suite.Push(t.Context(), "only-kernel:1", kernelImage(t))
	assert.NilError(t, err)
	name := made(t, ofKernel("only-kernel", object{"image": ref}))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={.status.phase}=Running"))
	assert.NilError(t, says(t.Context(), name, "nodevirt guest: up"))
	if got := imageOf(t, name); got != ref {
		t.Errorf("the pod's image is %q, want %q", got, ref)
	}
}

// TestTheControllersImageInAnOrdinaryPod: a runtime other than the shim starts the controller where a
// VM is wanted. It ends at once, and says what is missing.
func TestTheControllersImageInAnOrdinaryPod(t *testing.T) {
	t.Parallel()
	name := made(t, object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "no-shim"},
		"spec": object{
			"restartPolicy": "Never", "automountServiceAccountToken": false,
			"containers": []object{{"name": "compute", "image": controllersImage(t), "imagePullPolicy": "IfNotPresent"}},
		},
	})
	assert.NilError(t, suite.WaitFor(t.Context(), "pod/"+name, "jsonpath={.status.phase}=Failed"))
	wait.Success(t, "the reason in the log", func(ctx context.Context) error {
		log, err := suite.Kubectl(ctx, "logs", name)
		if err == nil && !strings.Contains(log, "run nodevirt-shim on its node") {
			err = fmt.Errorf("log: %q", log)
		}
		return err
	})
}
