//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/wait"
)

// apply applies an example and deletes it when the test ends.
func apply(t *testing.T, example string) {
	t.Helper()
	path := filepath.Join(examples(t), example)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if t.Failed() {
			about, _ := suite.Kubectl(ctx, "describe", "vmi,pods")
			t.Logf("%s", about)
		}
		if _, err := suite.Kubectl(ctx, "delete", "--ignore-not-found", "-f", path); err != nil {
			t.Error(err)
		}
	})
	kubectl(t, "apply", "--server-side", "-f", path)
}

func TestTheExampleOfAnInstance(t *testing.T) {
	t.Parallel()
	apply(t, "vmi.yaml")
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/instance", "condition=Ready"))
	ip := kubectl(t, "get", "vmi", "instance", "-o", "jsonpath={.status.interfaces[0].ipAddress}")
	if got := answer(t, ip); got.Hostname != "instance" {
		t.Errorf("host name: %q", got.Hostname)
	}
}

func TestTheExampleOfAPreset(t *testing.T) {
	t.Parallel()
	apply(t, "preset.yaml")
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/flavored", "condition=Ready"))
	pod := kubectl(t, "get", "pods", "--selector=vm.kubevirt.io/name=flavored", "-o", "jsonpath={.items[0].metadata.name}")
	xml := virsh(t, "dumpxml", pod)
	for _, want := range []string{"cores='2'", "<rng "} {
		if !strings.Contains(xml, want) {
			t.Errorf("the machine has no %s:\n%s", want, xml)
		}
	}
}

func TestTheExampleOfCloudInit(t *testing.T) {
	t.Parallel()
	apply(t, "cloud-init.yaml")
	prints(t, "cloud-init", "hello from cloud-init on named-by-vm")
}

func TestTheExampleOfFiles(t *testing.T) {
	t.Parallel()
	apply(t, "files.yaml")
	prints(t, "files", "the color is blue, the key 9 characters long")
}

// prints waits until the user data of a VM's guest has printed a line.
func prints(t *testing.T, name, line string) {
	t.Helper()
	wait.Success(t, "what user data prints", func(ctx context.Context) error {
		log, err := suite.Kubectl(ctx, "logs", "--tail=200", "--selector=vm.kubevirt.io/name="+name)
		if err == nil && !strings.Contains(log, line) {
			err = fmt.Errorf("log: %q", log)
		}
		return err
	})
}

func TestTheExampleOfAKernel(t *testing.T) {
	t.Parallel()
	assert.NilError(t, pushKernel(t.Context()))
	apply(t, "kernel.yaml")
	assert.NilError(t, suite.WaitFor(t.Context(), "pod/kernel", "condition=Ready"))
	if got := answer(t, field(t, "kernel", ".status.podIP")); got.Hostname != "kernel" {
		t.Errorf("host name: %q", got.Hostname)
	}
}

// pushKernel pushes the image that the example names: a disk with a kernel beside it.
func pushKernel(ctx context.Context) error {
	o := suite.Control().GuestOptions()
	k, err := guest.TinyKernel(ctx, o)
	if err != nil {
		return err
	}
	disk, err := guest.Tiny(ctx, o)
	if err != nil {
		return err
	}
	img, err := images.RegistryDisk(disk, images.DiskOptions{AsFolder: true, Above: [][]images.File{
		{{Name: "boot/vmlinuz", From: k.Image}, {Name: "boot/initrd", From: k.Initrd}},
	}})
	if err != nil {
		return err
	}
	_, err = suite.Push(ctx, "debian-kernel:12", img)
	return err
}
