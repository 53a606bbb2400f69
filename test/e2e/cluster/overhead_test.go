//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestAVMAtItsLimitBootsAgain: a guest whose limit is its size, with a display, a disk, and room to grow, boots again
// and again, gets vCPUs, memory and a disk, and is not ended for what its QEMU needs beside it.
func TestAVMAtItsLimitBootsAgain(t *testing.T) {
	t.Parallel()
	const name, disk = "at-its-limit", "at-its-limit-more"
	localPVC(t, disk, "Block", loopfs.Device(t, 96<<20))
	undo(t, func(ctx context.Context) error {
		_, err := suite.Kubectl(ctx, "delete", "kubevirt", "kubevirt", "--namespace=nodevirt", "--ignore-not-found")
		return err
	})
	assert.NilError(t, create(t.Context(), object{
		"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": object{"name": "kubevirt", "namespace": "nodevirt"},
		"spec": object{"configuration": object{"developerConfiguration": object{"useEmulation": true}}},
	}))
	reserves := func(ctx context.Context) (pod string, err error) {
		out, err := suite.Kubectl(ctx, "get", "pods", "--selector="+byName+"="+name, "-o", `jsonpath={.items[0].metadata.name} {.items[0].metadata.annotations}`)
		if err != nil {
			return "", err
		}
		pod, annotations, _ := strings.Cut(out, " ")
		if !strings.Contains(annotations, "addedOverhead") {
			return pod, errors.New("its pod reserves nothing for QEMU")
		}
		return pod, nil
	}
	made(t, object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": object{"name": name},
		"spec": object{"runStrategy": "Always", "template": object{"spec": object{
			"nodeSelector": object{"kubernetes.io/hostname": "node-1"},
			"domain": object{
				"cpu":     object{"sockets": 1, "maxSockets": 4},
				"memory":  object{"guest": "192Mi", "maxGuest": "1Gi"},
				"devices": object{"autoattachGraphicsDevice": true, "disks": []object{{"name": "boot", "disk": object{"bus": "virtio"}}}},
			},
			"volumes": []object{{"name": "boot", "containerDisk": object{"image": suite.agent}}},
		}}},
	})
	boot := answerOf(t, name, "")
	pod, err := reserves(t.Context())
	if err != nil { // the controller had not read the object
		kubectl(t, "delete", "vmi", name)
		boot = answerOf(t, name, boot)
		pod, err = reserves(t.Context())
	}
	assert.NilError(t, err)
	v := &virtctl{t: t, seen: map[string]bool{}}
	again := func(command string) {
		t.Helper()
		v.works(command+" "+name, name)
		boot = answerOf(t, name, boot)
	}
	again("reset")
	again("reset")
	kubectl(t, "patch", "vm", name, "--type=merge", "-p", `{"spec": {"template": {"spec": {"domain": {"cpu": {"sockets": 4}, "memory": {"guest": "448Mi"}}}}}}`)
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={.status.currentCPUTopology.sockets}=4"))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={.status.memory.guestCurrent}=448Mi"))
	v.works("addvolume "+name+" --volume-name="+disk, "Successfully submitted add volume request")
	wait.Success(t, "the guest with four vCPUs and more memory", func(ctx context.Context) error {
		out, err := suite.Kubectl(ctx, "exec", pod, "--", "sh", "-c", online)
		if err != nil {
			return err
		}
		var cpus, kib int
		if _, err := fmt.Sscan(out, &cpus, &kib); err != nil || cpus != 4 || kib < 300<<10 {
			return fmt.Errorf("nproc and memory: %s, %w", out, err)
		}
		return nil
	})
	again("reset")
	again("soft-reboot")
	again("reset")
	if now, err := reserves(t.Context()); err != nil || now != pod {
		t.Errorf("its pod is %s, and was %s: %v", now, pod, err)
	}
	assert.Equal(t, kubectl(t, "get", "pod", pod, "-o", `jsonpath={.status.containerStatuses[?(@.name=="compute")].restartCount}`), "0")
}
