//go:build cdi

package cdi

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// printable waits until a VM has a printable status.
func printable(t *testing.T, vm, status string) {
	t.Helper()
	assert.NilError(t, suite.WaitFor(t.Context(), "vm/"+vm, "jsonpath={.status.printableStatus}="+status))
}

// says waits until a condition of a VM has a text in its message.
func says(t *testing.T, vm, condition, text string) {
	t.Helper()
	wait.Success(t, fmt.Sprintf("%q in %s of %s", text, condition, vm), func(ctx context.Context) error {
		got, err := suite.Kubectl(ctx, "get", "vm", vm, "-o", `jsonpath={.status.conditions[?(@.type=="`+condition+`")].message}`)
		if err == nil && !strings.Contains(got, text) {
			err = fmt.Errorf("it says %q", got)
		}
		return err
	})
}

// TestAVMImportsItsDisk: a VM waits while CDI imports its disk, reports that, and then boots from it.
func TestAVMImportsItsDisk(t *testing.T) {
	t.Parallel()
	t.Cleanup(suite.web.release)
	const name = "importing"
	made(t, vm(name, "local", "Block", object{"http": object{"url": suite.web.url + heldPath}}))
	select {
	case <-suite.web.reached:
	case <-t.Context().Done():
	}
	printable(t, name, "Provisioning")
	says(t, name, "Synchronized", "DataVolume default/importing-disk is in phase ImportInProgress")
	if pods := kubectl(t, "get", "pods", "--selector=app="+name, "-o", "name"); pods != "" {
		t.Errorf("the VM has pods before its disk: %s", pods)
	}
	suite.web.release()
	answers(t, name)
	printable(t, name, "Running")
}

// TestAVMIsTheFirstConsumer: where volumes are made for the node of their pod, CDI fills the disk once the
// VM's pod is scheduled.
func TestAVMIsTheFirstConsumer(t *testing.T) {
	t.Parallel()
	const name = "consuming"
	made(t, vm(name, "local-wait", "Filesystem", object{"registry": object{"url": "docker://" + suite.image}}))
	answers(t, name)
	filled(t, name+"-disk")
}

// TestAVMGetsItsPVCBound: CDI fills PVCs of other than CSI drivers only when they are bound. A pod has the VM's bound
// first where volumes wait for a pod, and is gone when the VM runs.
func TestAVMGetsItsPVCBound(t *testing.T) {
	t.Parallel()
	const name, class = "bound", "static-wait"
	folder := t.TempDir() // which the nodes see
	assert.NilError(t, os.Chmod(folder, 0o777))
	made(t, object{
		"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": object{"name": class},
		"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
	})
	made(t, object{
		"apiVersion": "v1", "kind": "PersistentVolume", "metadata": object{"name": class},
		"spec": object{
			"storageClassName": class, "accessModes": []string{"ReadWriteOnce"}, "capacity": object{"storage": "1Gi"},
			"hostPath": object{"path": folder, "type": "Directory"},
		},
	})
	made(t, vm(name, class, "Filesystem", object{"registry": object{"url": "docker://" + suite.image}}))
	answers(t, name)
	filled(t, name+"-disk")
	if pods := kubectl(t, "get", "pods", "--selector=kubevirt.io=hotplug-disk", "-o", "name"); pods != "" {
		t.Errorf("the VM runs, and has the pods %s", pods)
	}
}

// TestAVMReportsAFailedImport: the VM says why CDI cannot import its disk.
func TestAVMReportsAFailedImport(t *testing.T) {
	t.Parallel()
	const name = "failing"
	made(t, vm(name, "local", "Block", object{"http": object{"url": suite.web.url + noPath}}))
	printable(t, name, "DataVolumeError")
	says(t, name, "Synchronized", "404")
}

// TestTheExampleOfADataVolume: the VM boots from the disk that CDI has downloaded.
func TestTheExampleOfADataVolume(t *testing.T) {
	t.Parallel()
	const name = "downloaded"
	text, err := os.ReadFile("../../../examples/datavolume.yaml")
	assert.NilError(t, err)
	removed(t, "vm", name)
	assert.NilError(t, suite.Apply(t.Context(), strings.NewReplacer("https://images.example.com/debian-12.qcow2", suite.web.url+diskPath,
		"storage: 10Gi", "storage: "+size, "guest: 1Gi", "guest: 96Mi").Replace(string(text))))
	answers(t, name)
	printable(t, name, "Running")
}
