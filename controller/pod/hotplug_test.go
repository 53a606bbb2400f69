package pod_test

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/golden"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/nodevirt/nodevirt/controller/pod"
)

var holder = pod.Holder{Image: "registry.example.com/controller:1", Args: []string{"-hold-volumes"}}

func launcher() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "virt-launcher-pvcs-abcde", Namespace: "default", UID: "2c1f8c0e-0000-4000-8000-00000000000a"},
		Spec:       corev1.PodSpec{NodeName: "node1"},
	}
}

// TestAttachment makes the attachment pods of a file system and of a block device.
func TestAttachment(t *testing.T) {
	vmi := read(t, "pvcs")
	vmi.Spec.Domain.Devices.Disks[3].Disk.ReadOnly = true
	vmi.Spec.PriorityClassName = "important"
	for _, volume := range []string{"late", "early", "library"} {
		p, err := pod.Attachment(vmi, launcher(), volume, pvcObjects(t), holder)
		assert.NilError(t, err)
		text, err := yaml.Marshal(p)
		assert.NilError(t, err)
		golden.Assert(t, string(text), "attachment-"+volume+".pod.yaml")
		instance, own, is := pod.AttachedTo(p)
		assert.Assert(t, is && instance == "pvcs" && own == launcher().UID)
	}
	_, _, is := pod.AttachedTo(launcher())
	assert.Assert(t, !is)
	// A pod in place of one that goes has another name, again the same for the same one.
	names := map[string]bool{}
	for _, former := range [][]types.UID{nil, {"a"}, {"b"}, {"a", "b"}, {"a"}} {
		names[pod.AttachmentName(launcher(), "late", former...)] = true
	}
	assert.Equal(t, len(names), 4)
	for volume, want := range map[string]string{"root": "", "none": "volume none is not a PVC"} {
		_, err := pod.Attachment(vmi, launcher(), volume, pvcObjects(t), holder)
		assert.Equal(t, err == nil, want == "", "%s: %v", volume, err)
	}
	_, err := pod.Attachment(vmi, launcher(), "late", pvcObjects(t), pod.Holder{})
	assert.ErrorContains(t, err, "-attachment-image")
	assert.Equal(t, pvcObjects(t).BlankSize(vmi, "late"), int64(1<<30))
	assert.Equal(t, pvcObjects(t).BlankSize(vmi, "early"), int64(0))
}

// TestHotplugged: what a VM needs to start, it starts with.
func TestHotplugged(t *testing.T) {
	yes := true
	one := uint(1)
	for name, tt := range map[string]struct {
		change func(*kubevirt.VirtualMachineInstanceSpec)
		want   string
	}{
		"a disk": {func(*kubevirt.VirtualMachineInstanceSpec) {}, "late"},
		"a lun": {func(s *kubevirt.VirtualMachineInstanceSpec) {
			s.Domain.Devices.Disks[6] = kubevirt.Disk{Name: "late", DiskDevice: kubevirt.DiskDevice{LUN: &kubevirt.LunTarget{}}}
		}, "late"},
		"a disk on virtio": {func(s *kubevirt.VirtualMachineInstanceSpec) {
			s.Domain.Devices.Disks[6].Disk.Bus = kubevirt.DiskBusVirtio
		}, "late"},
		"a drive": {func(s *kubevirt.VirtualMachineInstanceSpec) {
			s.Domain.Devices.Disks[6] = kubevirt.Disk{Name: "late", DiskDevice: kubevirt.DiskDevice{CDRom: &kubevirt.CDRomTarget{}}}
		}, "late"},
		"a drive to boot from": {func(s *kubevirt.VirtualMachineInstanceSpec) {
			s.Domain.Devices.Disks[6] = kubevirt.Disk{Name: "late", BootOrder: &one, DiskDevice: kubevirt.DiskDevice{CDRom: &kubevirt.CDRomTarget{}}}
		}, ""},
		"to boot from":          {func(s *kubevirt.VirtualMachineInstanceSpec) { s.Domain.Devices.Disks[6].BootOrder = &one }, ""},
		"with its own iothread": {func(s *kubevirt.VirtualMachineInstanceSpec) { s.Domain.Devices.Disks[6].DedicatedIOThread = &yes }, ""},
		"with the volume's blocks": {func(s *kubevirt.VirtualMachineInstanceSpec) {
			s.Domain.Devices.Disks[6].BlockSize = &kubevirt.BlockSize{MatchVolume: &kubevirt.FeatureState{}}
		}, ""},
		"without hotplug": {func(s *kubevirt.VirtualMachineInstanceSpec) { s.Domain.Devices.DisableHotplug = true }, ""},
		"the first": {func(s *kubevirt.VirtualMachineInstanceSpec) {
			s.Domain.Devices.Disks = s.Domain.Devices.Disks[6:]
		}, ""},
		"the first of a VM that boots from another": {func(s *kubevirt.VirtualMachineInstanceSpec) {
			s.Domain.Devices.Disks = s.Domain.Devices.Disks[6:]
			s.Domain.Devices.Disks[1].BootOrder = &one
		}, "late"},
		"without a disk": {func(s *kubevirt.VirtualMachineInstanceSpec) { s.Domain.Devices.Disks = s.Domain.Devices.Disks[:6] }, ""},
	} {
		vmi := read(t, "pvcs")
		tt.change(&vmi.Spec)
		before := vmi.DeepCopy()
		assert.Equal(t, strings.Join(pod.Hotplugged(&vmi.Spec), ","), tt.want, name)
		started := pod.AtStart(vmi)
		assert.Equal(t, pod.VolumeOf(&started.Spec, "late") == nil, tt.want != "", name)
		gone := pod.DiskOf(&vmi.Spec, "late") == nil || tt.want != "" && !pod.IsDrive(&vmi.Spec, "late") // a drive stays, empty
		assert.Equal(t, pod.DiskOf(&started.Spec, "late") == nil, gone, name)
		assert.DeepEqual(t, vmi, before)
	}
}

// TestAfterStart: a VM starts with the disks on virtio for which it has no ports once it runs.
func TestAfterStart(t *testing.T) {
	vmi := read(t, "pvcs")
	for _, d := range []struct {
		name string
		bus  kubevirt.DiskBus
	}{{"a", "virtio"}, {"b", "scsi"}, {"c", "virtio"}, {"d", "virtio"}, {"e", "virtio"}, {"f", "scsi"}} {
		c := new(kubevirt.PersistentVolumeClaimVolumeSource)
		c.ClaimName, c.Hotpluggable = d.name, true
		vmi.Spec.Volumes = append(vmi.Spec.Volumes, kubevirt.Volume{Name: d.name, VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: c}})
		vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks,
			kubevirt.Disk{Name: d.name, DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: d.bus}}})
	}
	assert.Equal(t, strings.Join(pod.AfterStart(&vmi.Spec), ","), "late,a,b,c,d,f")
	assert.Equal(t, strings.Join(pod.Hotplugged(&vmi.Spec), ","), "late,a,b,c,d,e,f")
	assert.Assert(t, pod.VolumeOf(&pod.AtStart(vmi).Spec, "e") != nil)
}

// TestPlugged: a VM got what its pod does not have.
func TestPlugged(t *testing.T) {
	vmi, own := read(t, "pvcs"), launcher()
	own.Spec.Volumes = []corev1.Volume{{Name: "root"}, {Name: "early"}}
	assert.DeepEqual(t, pod.Plugged(vmi, own), []string{"late"})
	assert.Assert(t, pod.VolumeOf(&pod.AsStarted(vmi, own).Spec, "late") == nil)
	assert.Assert(t, pod.VolumeOf(&pod.AsStarted(vmi, own).Spec, "early") != nil)
}

// tools adds a registry disk that the guest only reads.
func tools(s *kubevirt.VirtualMachineInstanceSpec) {
	s.Volumes = append(s.Volumes, kubevirt.Volume{Name: "tools", VolumeSource: kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{
		Image: "registry.example.com/tools:1", ImagePullSecret: "pull", ImagePullPolicy: corev1.PullAlways, Path: "/disk/tools.img",
	}}})
	s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, kubevirt.Disk{
		Name: "tools", DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: "scsi", ReadOnly: true}},
	})
}

// TestImagesToPlug: a VM gets the registry disks of its template that it has not started with and only reads.
func TestImagesToPlug(t *testing.T) {
	vmi, own := read(t, "pvcs"), launcher()
	template := vmi.Spec.DeepCopy()
	tools(template)
	assert.DeepEqual(t, pod.Images(template, vmi), []string{"tools"})
	assert.Equal(t, len(pod.Images(&vmi.Spec, vmi)), 0)
	for name, change := range map[string]func(*kubevirt.VirtualMachineInstanceSpec){
		"written":         func(s *kubevirt.VirtualMachineInstanceSpec) { pod.DiskOf(s, "tools").Disk.ReadOnly = false },
		"on sata":         func(s *kubevirt.VirtualMachineInstanceSpec) { pod.DiskOf(s, "tools").Disk.Bus = "sata" },
		"without hotplug": func(s *kubevirt.VirtualMachineInstanceSpec) { s.Domain.Devices.DisableHotplug = true },
		"without a disk":  func(s *kubevirt.VirtualMachineInstanceSpec) { s.Domain.Devices.Disks = vmi.Spec.Domain.Devices.Disks },
	} {
		changed := template.DeepCopy()
		change(changed)
		assert.Equal(t, len(pod.Images(changed, vmi)), 0, name)
	}
	tools(&vmi.Spec)
	assert.Equal(t, len(pod.Images(template, vmi)), 0, "it has started with it")
	assert.Assert(t, !strings.Contains(strings.Join(pod.Plugged(vmi, own), ","), "tools"))
	vmi.Annotations = map[string]string{pod.AnnotationHotplugged: "late,tools"}
	assert.DeepEqual(t, pod.Images(template, vmi), []string{"tools"})
	assert.Assert(t, strings.HasSuffix(strings.Join(pod.Plugged(vmi, own), ","), ",tools"))
	vmi.Status.VolumeStatus = []kubevirt.VolumeStatus{{Name: "tools"}}
	assert.Assert(t, !strings.Contains(strings.Join(pod.Plugged(vmi, own), ","), "tools"))
	assert.Assert(t, pod.VolumeOf(&pod.AtStart(vmi).Spec, "tools") != nil, "a VM that starts has it from the start")
}

// TestImageAttachment: the attachment pod of a registry disk has the image, on both nodes of a migration.
func TestImageAttachment(t *testing.T) {
	vmi := read(t, "pvcs")
	tools(&vmi.Spec)
	p, err := pod.Attachment(vmi, launcher(), "tools", nil, holder)
	assert.NilError(t, err)
	assert.DeepEqual(t, p.Spec.Volumes, []corev1.Volume{{Name: "tools", VolumeSource: corev1.VolumeSource{
		Image: &corev1.ImageVolumeSource{Reference: "registry.example.com/tools:1", PullPolicy: corev1.PullAlways},
	}}})
	assert.DeepEqual(t, p.Spec.ImagePullSecrets, []corev1.LocalObjectReference{{Name: "pull"}})
	assert.DeepEqual(t, p.Spec.Containers[0].VolumeMounts, []corev1.VolumeMount{{Name: "tools", MountPath: "/volumes/tools", ReadOnly: true}})
	assert.Equal(t, pod.Held(p).Name+" "+pod.Held(p).Image(), "tools registry.example.com/tools:1")
	target := launcher()
	target.Name, target.UID, target.Spec.NodeName = "virt-launcher-pvcs-fghij", "2c1f8c0e-0000-4000-8000-00000000000b", "node2"
	want, err := pod.Attachment(vmi, target, "tools", nil, holder)
	assert.NilError(t, err)
	for _, from := range []*corev1.Pod{p, nil} {
		got, err := pod.MovedAttachment(vmi, target, "tools", nil, from, holder)
		assert.NilError(t, err)
		assert.DeepEqual(t, got, want)
	}
	pod.Remove(&vmi.Spec, "tools")
	got, err := pod.MovedAttachment(vmi, target, "tools", nil, p, holder)
	assert.NilError(t, err)
	assert.DeepEqual(t, got, want)
	_, err = pod.MovedAttachment(vmi, target, "tools", nil, nil, holder)
	assert.ErrorContains(t, err, "which image it is")
}

// TestMovedAttachment: the target's attachment pod differs from the source's only in its node and its VM's pod.
func TestMovedAttachment(t *testing.T) {
	vmi, objects := read(t, "pvcs"), pvcObjects(t)
	vmi.Spec.Domain.Devices.Disks[3].Disk.ReadOnly = true
	target := launcher()
	target.Name, target.UID, target.Spec.NodeName = "virt-launcher-pvcs-fghij", "2c1f8c0e-0000-4000-8000-00000000000b", "node2"
	for _, volume := range []string{"late", "early", "library"} {
		source, err := pod.Attachment(vmi, launcher(), volume, objects, holder)
		assert.NilError(t, err)
		name := pod.Held(source).PVC
		pvc := objects[name].DeepCopy()
		pvc.Name = name
		want, err := pod.Attachment(vmi, target, volume, objects, holder)
		assert.NilError(t, err)
		for _, from := range []*corev1.Pod{source, nil} {
			got, err := pod.MovedAttachment(vmi, target, volume, pvc, from, holder)
			assert.NilError(t, err)
			assert.DeepEqual(t, got, want)
		}
		_, err = pod.MovedAttachment(vmi, target, volume, pvc, source, pod.Holder{})
		assert.ErrorContains(t, err, "does not know its own image")
	}
}

// TestAsMoved: the next pod of a VM has the volumes of its present one, hotpluggable or not.
func TestAsMoved(t *testing.T) {
	vmi := read(t, "pvcs")
	own, plugged := launcher(), ""
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		if v.PersistentVolumeClaim != nil {
			v.PersistentVolumeClaim.Hotpluggable = true
			if plugged == "" {
				plugged = v.Name
				continue
			}
		}
		own.Spec.Volumes = append(own.Spec.Volumes, corev1.Volume{Name: v.Name})
	}
	moved := pod.AsMoved(vmi, own)
	assert.Equal(t, len(pod.AfterStart(&moved.Spec)), 0)
	assert.Equal(t, len(moved.Spec.Volumes), len(vmi.Spec.Volumes)-1)
	assert.Assert(t, pod.VolumeOf(&moved.Spec, plugged) == nil)
	assert.Assert(t, len(pod.AfterStart(&vmi.Spec)) > 0, "the instance stays as it is")
}
