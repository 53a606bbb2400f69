package subresources_test

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// volumes returns the names of a spec's volumes and disks, with their sources and buses.
func volumes(s *kubevirt.VirtualMachineInstanceSpec) string {
	var all []string
	for _, v := range s.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			all = append(all, fmt.Sprint(v.Name, "=", v.PersistentVolumeClaim.ClaimName, " ", v.PersistentVolumeClaim.Hotpluggable))
		case v.DataVolume != nil:
			all = append(all, fmt.Sprint(v.Name, "=", v.DataVolume.Name, " ", v.DataVolume.Hotpluggable))
		default:
			all = append(all, v.Name)
		}
	}
	for _, d := range s.Domain.Devices.Disks {
		bus := kubevirt.DiskBus("")
		if d.Disk != nil {
			bus = d.Disk.Bus
		}
		all = append(all, fmt.Sprint(d.Name, ":", bus))
	}
	return strings.Join(all, ", ")
}

// Volumes are added and removed as KubeVirt's users are used to it.
func testVolumes(t *testing.T, w *world, front tls.Certificate) {
	const (
		pvc  = `{"name": "data", "disk": {"disk": {"bus": "scsi"}}, "volumeSource": {"persistentVolumeClaim": {"claimName": "c"}}}`
		dv   = `{"name": "more", "disk": {"disk": {}}, "volumeSource": {"dataVolume": {"name": "d"}}, "dryRun": DRY}`
		root = `root, root:`
	)
	dry, wet := strings.Replace(dv, "DRY", `["All"]`, 1), strings.Replace(dv, "DRY", `null`, 1)
	spec := func(s *kubevirt.VirtualMachineInstanceSpec) {
		s.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{Image: "i"}}}}
		s.Domain.Devices.Disks = []kubevirt.Disk{{Name: "root"}}
	}
	halted, running := w.vm(t, "volumes-halted", kubevirt.RunStrategyHalted), w.vm(t, "volumes-running", kubevirt.RunStrategyAlways)
	for _, vm := range []*kubevirt.VirtualMachine{halted, running} {
		spec(&vm.Spec.Template.Spec)
		assert.NilError(t, w.Update(t.Context(), vm))
	}
	vmi := w.vmi(t, running.Name, running, kubevirt.Running)
	spec(&vmi.Spec)
	assert.NilError(t, w.Update(t.Context(), vmi))
	starting := w.vmi(t, "volumes-starting", nil, kubevirt.Scheduled)
	has := func(o client.Object) string {
		t.Helper()
		assert.NilError(t, w.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		if vm, is := o.(*kubevirt.VirtualMachine); is {
			return volumes(&vm.Spec.Template.Spec)
		}
		return volumes(&o.(*kubevirt.VirtualMachineInstance).Spec)
	}
	for _, c := range []struct {
		of         client.Object
		verb, body string
		code       int
		want       string // the refusal, or the volumes then
	}{
		{halted, "addvolume", ``, 400, "AddVolumeOptions requires name to be set"},
		{halted, "addvolume", `{"name": "data"}`, 400, "AddVolumeOptions requires disk to not be nil"},
		{halted, "addvolume", `{"name": "data", "disk": {}}`, 400, "AddVolumeOptions requires VolumeSource to not be nil"},
		{halted, "addvolume", strings.Replace(pvc, "data", "root", 1), 409, "Unable to add volume [root] because volume with that name already exists"},
		{halted, "addvolume", pvc, 202, "root, data=c true, root:, data:scsi"},
		{halted, "addvolume", strings.Replace(pvc, "data", "again", 1), 409, "Unable to add volume source [c] because it already exists"},
		{halted, "addvolume", dry, 202, "root, data=c true, root:, data:scsi"},
		{halted, "addvolume", strings.Replace(wet, `"disk": {}`, `"disk": {"bus": "virtio"}`, 1), 202, "root, data=c true, more=d true, root:, data:scsi, more:virtio"},
		{halted, "removevolume", `{}`, 400, "RemoveVolumeOptions requires name to be set"},
		{halted, "removevolume", `{"name": "root"}`, 409, "Unable to remove volume [root] because it is not hotpluggable"},
		{halted, "removevolume", `{"name": "none"}`, 409, "Unable to remove volume [none] because it does not exist"},
		{halted, "removevolume", `{"name": "data", "dryRun": ["All"]}`, 202, "root, data=c true, more=d true, root:, data:scsi, more:virtio"},
		{halted, "removevolume", `{"name": "data"}`, 202, "root, more=d true, root:, more:virtio"},
		{halted, "removevolume", `{"name": "d"}`, 202, root},
		{running, "addvolume", strings.Replace(pvc, "scsi", "sata", 1), 400, "Hotplug configuration for disk [data] requires bus to be 'scsi' or 'virtio'. [sata] is not permitted."},
		{running, "addvolume", wet, 202, "root, more=d true, root:, more:scsi"},
		{running, "addvolume", `{"name": "x", "disk": {}, "volumeSource": {"dataVolume": {"name": "e"}}}`, 202, "root, more=d true, x=e true, root:, more:scsi, x:scsi"},
		{running, "removevolume", `{"name": "x"}`, 202, "root, more=d true, root:, more:scsi"},
		{vmi, "addvolume", `{"name": "x", "disk": {}, "volumeSource": {"dataVolume": {"name": "d"}}}`, 400, "diskDevice of type 'disk' or 'lun'"},
		{vmi, "addvolume", pvc, 202, "root, data=c true, root:, data:scsi"},
		{vmi, "removevolume", `{"name": "data"}`, 202, root},
		{starting, "addvolume", pvc, 409, "VMI is not running"},
	} {
		resource := "virtualmachines/"
		if _, is := c.of.(*kubevirt.VirtualMachineInstance); is {
			resource = "virtualmachineinstances/"
		}
		before := has(c.of)
		code, message := w.ask(&front, "admin", "PUT", resource+c.of.GetName()+"/"+c.verb, c.body)
		if code != c.code {
			t.Errorf("%s %s: status %d, %q; want %d", c.verb, c.body, code, message, c.code)
		}
		want := c.want
		if code >= 400 {
			if want = before; !strings.Contains(message, c.want) {
				t.Errorf("%s %s: %q; want %q", c.verb, c.body, message, c.want)
			}
		}
		if got := has(c.of); got != want {
			t.Errorf("%s %s: then %s; want %s", c.verb, c.body, got, want)
		}
	}
	assert.Equal(t, has(vmi), root)
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, kubevirt.Volume{Name: "kept", VolumeSource: kubevirt.VolumeSource{
		DataVolume: &kubevirt.DataVolumeSource{Name: "k", Hotpluggable: true}}})
	assert.NilError(t, w.Update(t.Context(), vmi))
	vmi.Status.VolumeStatus = []kubevirt.VolumeStatus{{Name: "kept"}}
	assert.NilError(t, w.Status().Update(t.Context(), vmi))
	code, message := w.ask(&front, "admin", "PUT", "virtualmachineinstances/"+vmi.Name+"/removevolume", `{"name": "kept"}`)
	if code != 409 || !strings.Contains(message, "has started with it") {
		t.Errorf("remove what the VM has started with: status %d, %q", code, message)
	}
}
