//go:build cluster

package devices

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/hostdevice"
	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/wait"
)

// requests are a class of the driver's devices, and what the VM has of them: a template, and a ResourceClaim.
const requests = `apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: dra.example.com}
spec: {selectors: [{cel: {expression: 'device.driver == "dra.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu}
spec:
  spec:
    devices:
      requests:
      - name: gpu
        exactly:
          deviceClassName: dra.example.com
          selectors: [{cel: {expression: 'device.attributes["resource.kubernetes.io"].pciBusID == "0000:67:00.0"'}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: accelerators}
spec:
  devices:
    requests:
    - name: qat
      exactly:
        deviceClassName: dra.example.com
        selectors: [{cel: {expression: 'device.attributes["resource.kubernetes.io"].pciBusID == "0000:68:00.0"'}}]
`

// TestDevices: a VM has the devices that the kubelet took from a device plug-in, by variables and by CDI, and from a
// DRA driver, for a template and for a ResourceClaim. Another VM waits for them.
func TestDevices(t *testing.T) {
	for _, resource := range []string{gpuResource, nicResource} {
		assert.NilError(t, suite.WaitFor(t.Context(), "node/node-1", `jsonpath={.status.allocatable.`+strings.ReplaceAll(resource, ".", `\.`)+`}=1`))
	}
	assert.NilError(t, suite.Apply(t.Context(), requests))
	permit(t, gpuResource, nicResource)
	_, err := send(t, vmi("refused", object{"gpus": []object{{"name": "gpu", "deviceName": "example.com/other"}}}))
	assert.ErrorContains(t, err, "spec.domain.devices.gpus[0].deviceName")
	assert.ErrorContains(t, err, "is not permitted in permittedHostDevices")

	one := vmi("all", object{
		"gpus":        []object{{"name": "gpu", "deviceName": gpuResource}, {"name": "allocated", "claimName": "pool", "requestName": "gpu"}},
		"hostDevices": []object{{"name": "nic", "deviceName": nicResource}, {"name": "qat", "claimName": "accelerators", "requestName": "qat"}},
	})
	one["spec"].(object)["resourceClaims"] = []object{
		{"name": "pool", "resourceClaimTemplateName": "gpu"}, {"name": "accelerators", "resourceClaimName": "accelerators"},
	}
	_, err = send(t, one)
	assert.NilError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			about, _ := suite.Kubectl(context.WithoutCancel(t.Context()), "describe", "vmi,pods,resourceclaims")
			t.Log(about)
		}
	})
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/all", "jsonpath={.status.phase}=Failed"))
	// libvirt accepts the domain, and what VFIO needs is missing: QEMU's right to lock the guest's memory on machines
	// without CAP_SYS_RESOURCE, or else the device, which is /dev/null.
	why := clustertest.Kubectl(t, suite.Cluster, "get", "vmi", "all", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].message}`)
	if !strings.Contains(why, "cannot limit locked memory") && !strings.Contains(why, "vfio 0000:") {
		t.Errorf("the VM ended because of another thing: %s", why)
	}
	var has []hostdevice.Device
	for _, d := range []device{pluginGPU, driverGPU, pluginNIC, driverQAT} { // in the order of the manifest
		has = append(has, hostdevice.Device{Kind: hostdevice.PCI, Address: d.address, Node: d.node()})
	}
	assert.DeepEqual(t, recorded(t), has)
	clustertest.Kubectl(t, suite.Cluster, "delete", "vmi", "all")
}

// TestDevicesInUse: a VM waits for a device that another pod has, and says so.
func TestDevicesInUse(t *testing.T) {
	assert.NilError(t, suite.WaitFor(t.Context(), "node/node-1", `jsonpath={.status.allocatable.example\.com/gpu}=1`))
	permit(t, gpuResource)
	_, err := send(t, vmi("two", object{"gpus": []object{{"name": "a", "deviceName": gpuResource}, {"name": "b", "deviceName": gpuResource}}}))
	assert.NilError(t, err)
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/two", "condition=PodScheduled=False"))
	clustertest.Event(t, suite.Cluster, "VirtualMachineInstance", "two", "Insufficient "+gpuResource)
	clustertest.Kubectl(t, suite.Cluster, "delete", "vmi", "two")
}

// permit lets VMs have the devices of plug-ins with these resources alone.
func permit(t *testing.T, resources ...string) {
	t.Helper()
	var all []object
	for _, r := range resources {
		all = append(all, object{"pciVendorSelector": "10DE:1EB8", "resourceName": r, "externalResourceProvider": true})
	}
	configure := func(ctx context.Context, permitted any) error {
		text, err := encode(object{"spec": object{"configuration": object{"permittedHostDevices": permitted}}})
		if err == nil {
			_, err = suite.Kubectl(ctx, "patch", "kubevirt", "kubevirt", "--namespace=nodevirt", "--type=merge", "--patch="+text)
		}
		return err
	}
	assert.NilError(t, configure(t.Context(), object{"pciHostDevices": all}))
	t.Cleanup(func() { assert.NilError(t, configure(context.WithoutCancel(t.Context()), nil)) })
	wait.Success(t, "the configuration applies", func(context.Context) error {
		_, err := send(t, vmi("asked", object{"gpus": []object{{"name": "gpu", "deviceName": "example.com/other"}}}), "--dry-run=server")
		if err == nil {
			return fmt.Errorf("the resource example.com/other is permitted")
		}
		return nil
	})
}

// recorded returns the devices of the node's only VM, from which the shim has made its domain.
func recorded(t *testing.T) []hostdevice.Device {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(suite.Node("node-1").Dir(), "nodevirt", "containers", "*", "record.json"))
	assert.NilError(t, err)
	assert.Equal(t, len(files), 1)
	text, err := os.ReadFile(files[0])
	assert.NilError(t, err)
	var r struct{ HostDevices []hostdevice.Device }
	assert.NilError(t, json.Unmarshal(text, &r))
	return r.HostDevices
}

// vmi is an instance of the tiny guest with devices.
func vmi(name string, devices object) object {
	devices["disks"] = []object{{"name": "boot", "disk": object{"bus": "virtio"}}}
	return object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": object{"name": name},
		"spec": object{
			"terminationGracePeriodSeconds": 0,
			"domain":                        object{"memory": object{"guest": "96Mi"}, "devices": devices},
			"volumes":                       []object{{"name": "boot", "containerDisk": object{"image": suite.tiny}}},
		},
	}
}

// send applies a manifest.
func send(t *testing.T, o object, args ...string) (string, error) {
	t.Helper()
	text, err := encode(o)
	assert.NilError(t, err)
	cmd := suite.KubectlCommand(t.Context(), append([]string{"apply", "-f", "-"}, args...)...)
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return string(out), err
}
