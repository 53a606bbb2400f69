package vmi

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/fields"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// hotpluggable adds a volume on a PVC that VMs get while they run.
func hotpluggable(volume, claim string) func(*kubevirt.VirtualMachineInstance) {
	return func(vmi *kubevirt.VirtualMachineInstance) {
		c := new(kubevirt.PersistentVolumeClaimVolumeSource)
		c.ClaimName, c.Hotpluggable = claim, true
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, kubevirt.Volume{Name: volume, VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: c}})
		vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, kubevirt.Disk{
			Name: volume, DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: kubevirt.DiskBusSCSI}},
		})
	}
}

// pvcOfOneNode creates a PVC that one node can use.
func (g *rig) pvcOfOneNode(name string, change ...func(*corev1.PersistentVolumeClaim)) {
	g.t.Helper()
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	pvc.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	for _, c := range change {
		c(pvc)
	}
	g.Add(g.t, pvc)
}

// plugged writes what package hotplug reports of a volume.
func plugged(volume, claim string, phase kubevirt.VolumePhase) func(*kubevirt.VirtualMachineInstance) {
	return func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Status.VolumeStatus = append(vmi.Status.VolumeStatus, kubevirt.VolumeStatus{
			Name: volume, Phase: phase, HotplugVolume: &kubevirt.HotplugVolumeStatus{AttachPodName: "hp-volume-" + volume},
			PersistentVolumeClaimInfo: &kubevirt.PersistentVolumeClaimInfo{ClaimName: claim},
		})
	}
}

// TestHotplugStart: a VM starts without what it gets once it runs, and waits for none of it.
func TestHotplugStart(t *testing.T) {
	g := newRig(t)
	g.add(hotpluggable("data", "missing"))
	g.reconcile()
	p := g.onePod()
	assert.Equal(t, len(p.Spec.Volumes), 0)
	assert.Assert(t, !strings.Contains(p.Annotations["nodevirt.io/vmi"], "data"))
	g.bind(p, "node1")
	guest, err := g.r.Guests.Guest(t.Context(), g.vmi())
	assert.NilError(t, err)
	assert.Assert(t, guest.Pod != nil && !guest.Running && !guest.Ended)
	g.state(p, running)
	g.reconcile()
	guest, err = g.r.Guests.Guest(t.Context(), g.vmi())
	assert.NilError(t, err)
	assert.Assert(t, guest.Running)
	assert.Equal(t, len(g.vmi().Status.VolumeStatus), 1)

	// What package hotplug reports stays. Such a VM moves with a volume that all nodes can have.
	fakecluster.Change(t, g.Cluster, g.vmi(), plugged("data", "missing", kubevirt.VolumeReady))
	g.reconcile()
	all := g.vmi().Status.VolumeStatus
	assert.Equal(t, len(all), 2)
	assert.Equal(t, all[1].Phase, kubevirt.VolumeReady)
	c := g.condition(kubevirt.VirtualMachineInstanceIsMigratable)
	assert.Equal(t, c.Status, corev1.ConditionFalse)
	fakecluster.Change(t, g.Cluster, g.vmi(), func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Spec.Networks = []kubevirt.Network{{Name: "default", NetworkSource: kubevirt.NetworkSource{Pod: &kubevirt.PodNetwork{}}}}
		masquerade := kubevirt.InterfaceBindingMethod{Masquerade: &kubevirt.InterfaceMasquerade{}}
		vmi.Spec.Domain.Devices.Interfaces = []kubevirt.Interface{{Name: "default", InterfaceBindingMethod: masquerade}}
	})
	g.reconcile()
	c = g.condition(kubevirt.VirtualMachineInstanceIsMigratable)
	assert.Equal(t, c.Reason, kubevirt.VirtualMachineInstanceReasonDisksNotMigratable)
	assert.Equal(t, c.Message, "cannot migrate VMI: Unable to determine if PVC missing is shared, "+
		"live migration requires that all PVCs must be shared (using ReadWriteMany access mode)")
	shared := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "missing"}}
	shared.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	g.Add(t, shared)
	g.reconcile()
	assert.Equal(t, g.condition(kubevirt.VirtualMachineInstanceIsMigratable).Status, corev1.ConditionTrue)
	// A disk that the guest does not release is not in the spec any more.
	modes := func(mode corev1.PersistentVolumeAccessMode) func(*kubevirt.VirtualMachineInstance) {
		return func(vmi *kubevirt.VirtualMachineInstance) {
			pod.Remove(&vmi.Spec, "data")
			vmi.Status.VolumeStatus[1].PersistentVolumeClaimInfo.AccessModes = []corev1.PersistentVolumeAccessMode{mode}
		}
	}
	fakecluster.Change(t, g.Cluster, g.vmi(), modes(corev1.ReadWriteOnce))
	g.reconcile()
	assert.Equal(t, g.condition(kubevirt.VirtualMachineInstanceIsMigratable).Message, "cannot migrate VMI: PVC missing is not shared, "+
		"live migration requires that all PVCs must be shared (using ReadWriteMany access mode)")
	fakecluster.Change(t, g.Cluster, g.vmi(), modes(corev1.ReadWriteMany))
	g.reconcile()
	assert.Equal(t, g.condition(kubevirt.VirtualMachineInstanceIsMigratable).Status, corev1.ConditionTrue)

	g.state(g.onePod(), completed)
	guest, err = g.r.Guests.Guest(t.Context(), g.vmi())
	assert.NilError(t, err)
	assert.Assert(t, guest.Ended && !guest.Running)
}

// TestReserve: a running VM gets a PVC that no other instance uses and that is complete.
func TestReserve(t *testing.T) {
	g := newRig(t)
	vmi := g.add(hotpluggable("data", "claim"))
	reserve := func() (reason, message string) {
		t.Helper()
		pvcs, release, why, err := g.r.Guests.Reserve(t.Context(), g.vmi(), "data")
		assert.NilError(t, err)
		if why != nil {
			return why.Reason, why.Message
		}
		assert.Assert(t, pvcs["claim"] != nil)
		_, _, other, err := g.r.Guests.Reserve(t.Context(), g.vmi(), "data")
		assert.NilError(t, err)
		assert.Assert(t, other != nil && other.Again > 0, "two have a turn")
		release()
		return "", ""
	}
	check := func(reason, message string) {
		t.Helper()
		if r, m := reserve(); r != reason || !strings.Contains(m, message) {
			t.Errorf("%q, %q; want %q, %q", r, m, reason, message)
		}
	}
	check("FailedPvcNotFound", "PVC claim not found")
	g.pvcOfOneNode("claim", func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{pod.AnnotationOrigin: "registry.example.com/guest:1"}
	})
	check("PVCNotFilled", "a VM that runs can't make it one")
	set := func(change func(*corev1.PersistentVolumeClaim)) {
		fakecluster.Change(t, g.Cluster, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim"}}, change)
	}
	set(func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil })
	check("", "")

	// Another instance that starts with it, and one that has got it.
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "virt-launcher-other", Labels: map[string]string{kubevirt.CreatedByLabel: "u"},
		Annotations: map[string]string{kubevirt.DomainAnnotation: "other"},
	}}
	p.Spec.NodeName = "node1"
	p.Spec.Volumes = []corev1.Volume{{Name: "a", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}}}
	g.Add(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}, p)
	check("PVCInUse", "in use by instance other (pod virt-launcher-other)")
	assert.NilError(t, g.Delete(t.Context(), p))
	other := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "second"}}
	plugged("x", "claim", kubevirt.VolumeBound)(other)
	g.Add(t, other)
	check("PVCInUse", "in use by instance second (pod hp-volume-x)")
	set(func(c *corev1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	})
	check("", "")
	set(func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes = nil })
	fakecluster.Change(t, g.Cluster, other, func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Status.VolumeStatus[0].Phase = kubevirt.HotplugVolumeUnMounted
	})
	check("", "")

	// An attachment pod of another VM, though no instance reports it.
	p.ResourceVersion, p.UID = "", ""
	p.Name, p.Labels = "hp-volume-x", map[string]string{kubevirt.AppLabel: pod.AttachmentLabelValue}
	p.Annotations["nodevirt.io/attachment"] = "pod-of-other"
	g.Add(t, p)
	check("PVCInUse", "in use by instance other (pod hp-volume-x)")
	fakecluster.Change(t, g.Cluster, vmi, func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Status.ActivePods = map[types.UID]string{"pod-of-other": "node1"}
	})
	check("", "")
}

// TestStartWaitsForHotplug: an instance does not start with a PVC that another VM has got.
func TestStartWaitsForHotplug(t *testing.T) {
	g := newRig(t)
	g.pvcOfOneNode("claim")
	other := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "second"}}
	plugged("x", "claim", kubevirt.VolumeReady)(other)
	g.Add(t, other)
	g.add(func(vmi *kubevirt.VirtualMachineInstance) {
		hotpluggable("data", "claim")(vmi)
		vmi.Spec.Volumes[1].PersistentVolumeClaim.Hotpluggable = false
	})
	result := g.reconcile()
	assert.Assert(t, result.RequeueAfter > 0, "no event reports the end of that")
	assert.Equal(t, len(g.pods()), 0)
	assert.Equal(t, g.condition(kubevirt.VirtualMachineInstanceSynchronized).Reason, ReasonPVCInUse)
}

// TestCheckVolumes: of a running instance precisely the hot-plugged volumes change.
func TestCheckVolumes(t *testing.T) {
	const (
		base = `{"domain": {"memory": {"guest": "64Mi"}, "devices": {"disks": [{"name": "root", "disk": {}}DISKS]}},
			"volumes": [{"name": "root", "containerDisk": {"image": "example.com/fedora:41"}}VOLUMES]}`
		disk   = `, {"name": "data", "disk": {"bus": "scsi"}}`
		volume = `, {"name": "data", "persistentVolumeClaim": {"claimName": "c", "hotpluggable": true}}`
		dv     = `, {"name": "data", "dataVolume": {"name": "c", "hotpluggable": true}}`
		drive  = `, {"name": "data", "cdrom": {"bus": "sata"}}`
		image  = `, {"name": "data", "containerDisk": {"image": "example.com/tools:1"}}`
		read   = `, {"name": "data", "disk": {"bus": "scsi", "readonly": true}}`
		fixed  = ": an instance can't be changed"
	)
	made := func(disks, volumes string) string {
		return strings.NewReplacer("DISKS", disks, "VOLUMES", volumes).Replace(base)
	}
	for name, tt := range map[string]struct {
		old, now, status, want string
	}{
		"added":             {made("", ""), made(disk, volume), "", ""},
		"a DataVolume":      {made("", ""), made(disk, dv), "", ""},
		"a lun":             {made("", ""), made(`, {"name": "data", "lun": {"bus": "scsi"}}`, volume), "", ""},
		"removed":           {made(disk, volume), made("", ""), "", ""},
		"spelled otherwise": {made("", ""), strings.Replace(made(disk, volume), `"disk": {}`, `"disk": {"readonly": false}`, 1), "", ""},
		"before it runs":    {made("", ""), made(disk, volume), `{"phase": "Scheduled"}`, "spec.domain.devices.disks" + fixed},
		"not hotpluggable": {
			made("", ""), made(disk, strings.Replace(volume, "true", "false", 1)), "", "spec.domain.devices.disks" + fixed,
		},
		"started with": {
			made(disk, volume), made("", ""), `{"phase": "Running", "volumeStatus": [{"name": "data", "target": "sda"}]}`,
			"spec.domain.devices.disks" + fixed,
		},
		"without its disk": {made(disk, volume), made("", volume), "", "spec.domain.devices.disks: Required value: disk data does not exist"},
		"without its volume": {
			made(disk, volume), made(disk, ""), "", "spec.volumes" + fixed,
		},
		"on virtio":        {made("", ""), made(strings.Replace(disk, "scsi", "virtio", 1), volume), "", ""},
		"a medium":         {made(drive, ""), made(drive, volume), "", ""},
		"without a medium": {made(drive, volume), made(drive, ""), "", ""},
		"a medium and another drive": {
			made(drive, ""), made(strings.Replace(drive, "sata", "scsi", 1), volume), "", "spec.domain.devices.disks[1].cdrom.bus" + fixed,
		},
		"a drive":        {made("", ""), made(drive, volume), "", "spec.domain.devices.disks" + fixed},
		"an empty drive": {made("", ""), made(drive, ""), "", "spec.domain.devices.disks" + fixed},
		"on sata": {
			made("", ""), made(strings.Replace(disk, "scsi", "sata", 1), volume), "",
			"spec.domain.devices.disks: Hotplug configuration for disk [data] requires bus to be 'scsi' or 'virtio'. [sata] is not permitted.",
		},
		"another PVC": {made(disk, volume), made(disk, strings.Replace(volume, `"c"`, `"d"`, 1)), "", "spec.volumes: hotplug volume data, changed"},
		"another disk": {
			made(disk, volume), made(strings.Replace(disk, `"disk"`, `"cache": "none", "disk"`, 1), volume), "",
			"spec.domain.devices.disks: hotplug disk data, changed",
		},
		"and the memory": {
			made("", ""), strings.Replace(made(disk, volume), "64Mi", "65Mi", 1), "", "spec.domain.memory.guest" + fixed,
		},
		"and the image": {
			made("", ""), strings.Replace(made(disk, volume), ":41", ":42", 1), "", "spec.domain.devices.disks" + fixed,
		},
		"an image":             {made("", ""), made(read, image), "", ""},
		"an image to lose":     {made(read, image), made("", ""), "", ""},
		"an image as a medium": {made(drive, ""), made(drive, image), "", ""},
		"an image to write": {
			made("", ""), made(disk, image), "", "spec.domain.devices.disks: hotplug disk data, a running VM can only read a containerDisk: set readonly",
		},
		"an image that it started with": {
			made(read, image), made("", ""), `{"phase": "Running", "volumeStatus": [{"name": "data", "target": "sda"}]}`,
			"spec.domain.devices.disks" + fixed,
		},
		"without hotplug": {
			strings.Replace(made("", ""), `"disks"`, `"disableHotplug": true, "disks"`, 1),
			strings.Replace(made(disk, volume), `"disks"`, `"disableHotplug": true, "disks"`, 1), "",
			"spec.volumes: volume data: the instance has disableHotplug",
		},
	} {
		status := tt.status
		if status == "" {
			status = `{"phase": "Running", "volumeStatus": [{"name": "root", "target": "vda"}]}`
		}
		given := map[string]any{"annotations": map[string]any{pod.AnnotationHotplugged: "data"}}
		r := &admission.Review{
			Object: admission.Tree{"metadata": given, "spec": decoded(t, tt.now), "status": decoded(t, status)},
			Old:    admission.Tree{"metadata": given, "spec": decoded(t, tt.old), "status": decoded(t, status)},
		}
		var got string
		if problems := checkUpdate(r); len(problems) > 0 {
			got = fields.Sentence(problems[0])
		}
		if tt.want == "" && got != "" || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
