package vm

import (
	"errors"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// plug adds a hot-plugged volume to a spec, on a PVC.
func plug(s *kubevirt.VirtualMachineInstanceSpec, volume, claim string) {
	c := new(kubevirt.PersistentVolumeClaimVolumeSource)
	c.ClaimName, c.Hotpluggable = claim, true
	s.Volumes = append(s.Volumes, kubevirt.Volume{Name: volume, VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: c}})
	s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, kubevirt.Disk{
		Name: volume, DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: kubevirt.DiskBusSCSI}},
	})
}

// root adds the disk that the VM boots from.
func root(vm *kubevirt.VirtualMachine) {
	s := &vm.Spec.Template.Spec
	s.Volumes = append(s.Volumes, kubevirt.Volume{Name: "root", VolumeSource: kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{Image: "i"}}})
	s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, kubevirt.Disk{Name: "root"})
}

// template changes the VM's, as its user does.
func (g *rig) template(change func(*kubevirt.VirtualMachineInstanceSpec)) {
	g.t.Helper()
	fakecluster.Change(g.t, g.Cluster, g.vm(), func(vm *kubevirt.VirtualMachine) { change(&vm.Spec.Template.Spec) })
}

func (g *rig) restartRequired() bool {
	g.t.Helper()
	for _, c := range g.vm().Status.Conditions {
		if c.Type == kubevirt.VirtualMachineRestartRequired {
			return true
		}
	}
	return false
}

// has checks the names of the instance's volumes and disks.
func (g *rig) has(want string) {
	g.t.Helper()
	var volumes, disks []string
	s := g.vmi().Spec
	for _, v := range s.Volumes {
		volumes = append(volumes, v.Name)
	}
	for _, d := range s.Domain.Devices.Disks {
		disks = append(disks, d.Name)
	}
	assert.Equal(g.t, strings.Join(volumes, " "), want)
	assert.Equal(g.t, strings.Join(disks, " "), want)
}

// TestHotplug: the volumes of a running VM follow its template, without a restart.
func TestHotplug(t *testing.T) {
	g := newRig(t)
	g.add(kubevirt.RunStrategyAlways, root, func(vm *kubevirt.VirtualMachine) { plug(&vm.Spec.Template.Spec, "kept", "a") })
	g.reconcile()
	g.has("root kept")
	g.template(func(s *kubevirt.VirtualMachineInstanceSpec) { plug(s, "data", "b") })
	g.reconcile()
	g.has("root kept") // its VM does not run yet
	started := func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Status.VolumeStatus = []kubevirt.VolumeStatus{{Name: "root"}}
	}
	g.phase(kubevirt.Running, started)
	g.reconcile()
	g.has("root kept data")
	assert.Equal(t, g.vmi().Annotations[pod.AnnotationHotplugged], "kept,data")
	assert.Assert(t, !g.restartRequired())

	// What a user adds to the instance alone stays until the user removes it.
	fakecluster.Change(t, g.Cluster, g.vmi(), func(vmi *kubevirt.VirtualMachineInstance) { plug(&vmi.Spec, "own", "c") })
	g.template(func(s *kubevirt.VirtualMachineInstanceSpec) { pod.Remove(s, "data") })
	g.reconcile()
	g.has("root kept own")
	assert.Equal(t, g.vmi().Annotations[pod.AnnotationHotplugged], "kept")
	g.template(func(s *kubevirt.VirtualMachineInstanceSpec) { plug(s, "own", "c") })
	g.reconcile()
	assert.Equal(t, g.vmi().Annotations[pod.AnnotationHotplugged], "kept,own")

	// Another PVC follows when the VM has lost the former.
	status := func(phase kubevirt.VolumePhase) func(*kubevirt.VirtualMachineInstance) {
		return func(vmi *kubevirt.VirtualMachineInstance) {
			vmi.Status.VolumeStatus = []kubevirt.VolumeStatus{{Name: "root"}, {Name: "kept", Phase: phase, HotplugVolume: &kubevirt.HotplugVolumeStatus{}}}
		}
	}
	fakecluster.Change(t, g.Cluster, g.vmi(), status(kubevirt.VolumeReady))
	g.template(func(s *kubevirt.VirtualMachineInstanceSpec) {
		pod.VolumeOf(s, "kept").PersistentVolumeClaim.ClaimName = "d"
	})
	g.reconcile()
	g.has("root own")
	g.reconcile()
	g.has("root own")
	fakecluster.Change(t, g.Cluster, g.vmi(), started)
	g.reconcile()
	g.has("root own kept")
	assert.Equal(t, pod.VolumeOf(&g.vmi().Spec, "kept").PersistentVolumeClaim.ClaimName, "d")
	assert.Assert(t, !g.restartRequired())

	// A disk that only a start brings needs one.
	g.template(func(s *kubevirt.VirtualMachineInstanceSpec) {
		plug(s, "fast", "e")
		s.Domain.Devices.Disks[len(s.Domain.Devices.Disks)-1].Disk.Bus = kubevirt.DiskBusSATA
	})
	g.reconcile()
	g.has("root own kept")
	assert.Assert(t, g.restartRequired())
	g.Writes()
	g.reconcile()
	g.expect("")
}

// TestMedium: the medium of a drive follows the template, also of a drive to boot from that was empty at the start. The
// drive itself needs a start.
func TestMedium(t *testing.T) {
	for name, boot := range map[string]*uint{"a drive": nil, "a drive to boot from": new(uint(1))} {
		t.Run(name, func(t *testing.T) { medium(t, boot) })
	}
}

func medium(t *testing.T, boot *uint) {
	drive := func(name string, boot *uint) func(*kubevirt.VirtualMachineInstanceSpec) {
		return func(s *kubevirt.VirtualMachineInstanceSpec) {
			s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, kubevirt.Disk{
				Name: name, BootOrder: boot, DiskDevice: kubevirt.DiskDevice{CDRom: &kubevirt.CDRomTarget{Bus: kubevirt.DiskBusSATA}},
			})
		}
	}
	medium := func(name, claim string) func(*kubevirt.VirtualMachineInstanceSpec) {
		return func(s *kubevirt.VirtualMachineInstanceSpec) {
			c := new(kubevirt.PersistentVolumeClaimVolumeSource)
			c.ClaimName, c.Hotpluggable = claim, true
			s.Volumes = append(s.Volumes, kubevirt.Volume{Name: name, VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: c}})
		}
	}
	g := newRig(t)
	g.add(kubevirt.RunStrategyAlways, root, func(vm *kubevirt.VirtualMachine) { drive("cd", boot)(&vm.Spec.Template.Spec) })
	g.reconcile()
	started := func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Status.VolumeStatus = []kubevirt.VolumeStatus{{Name: "root"}}
	}
	g.phase(kubevirt.Running, started)
	has := func(want ...string) {
		t.Helper()
		g.reconcile()
		var volumes []string
		for _, v := range g.vmi().Spec.Volumes {
			volumes = append(volumes, v.Name)
		}
		assert.DeepEqual(t, volumes, want)
		assert.Equal(t, len(g.vmi().Spec.Domain.Devices.Disks), 2)
		assert.Assert(t, pod.IsDrive(&g.vmi().Spec, "cd"))
	}
	has("root")
	g.template(medium("cd", "iso"))
	has("root", "cd")
	assert.Assert(t, !g.restartRequired())
	g.template(func(s *kubevirt.VirtualMachineInstanceSpec) { pod.Remove(s, "cd") })
	has("root")
	assert.Assert(t, !g.restartRequired())

	// The VM has no second drive before its next start.
	g.template(drive("second", nil))
	g.template(medium("second", "other"))
	has("root")
	assert.Assert(t, g.restartRequired())
}

// TestImage: a running VM gets a registry disk that it only reads by its template, and one that it started with needs
// a restart to go.
func TestImage(t *testing.T) {
	image := func(name, image string, readOnly bool) func(*kubevirt.VirtualMachineInstanceSpec) {
		return func(s *kubevirt.VirtualMachineInstanceSpec) {
			s.Volumes = append(s.Volumes, kubevirt.Volume{Name: name, VolumeSource: kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{Image: image}}})
			s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, kubevirt.Disk{
				Name: name, DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: kubevirt.DiskBusSCSI, ReadOnly: readOnly}},
			})
		}
	}
	g := newRig(t)
	g.add(kubevirt.RunStrategyAlways, root, func(vm *kubevirt.VirtualMachine) { image("old", "a", true)(&vm.Spec.Template.Spec) })
	g.reconcile()
	assert.Assert(t, !g.restartRequired(), "before it runs")
	started := func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Status.VolumeStatus = []kubevirt.VolumeStatus{{Name: "root"}, {Name: "old"}}
	}
	g.phase(kubevirt.Running, started)
	g.reconcile()
	assert.Equal(t, g.vmi().Annotations[pod.AnnotationHotplugged], "")
	g.template(image("tools", "b", true))
	g.reconcile()
	g.has("root old tools")
	assert.Equal(t, g.vmi().Annotations[pod.AnnotationHotplugged], "tools")
	assert.Assert(t, !g.restartRequired())
	g.template(func(s *kubevirt.VirtualMachineInstanceSpec) { pod.VolumeOf(s, "tools").ContainerDisk.Image = "c" })
	g.reconcile()
	g.has("root old tools")
	assert.Equal(t, pod.VolumeOf(&g.vmi().Spec, "tools").ContainerDisk.Image, "c")
	assert.Assert(t, !g.restartRequired())
	g.template(func(s *kubevirt.VirtualMachineInstanceSpec) { pod.Remove(s, "tools") })
	g.reconcile()
	g.has("root old")
	assert.Assert(t, !g.restartRequired())

	g.template(image("written", "b", false))
	g.reconcile()
	g.has("root old")
	assert.Assert(t, g.restartRequired())
	g.template(func(s *kubevirt.VirtualMachineInstanceSpec) { pod.Remove(s, "written") })
	g.reconcile()
	assert.Assert(t, !g.restartRequired())
	g.template(func(s *kubevirt.VirtualMachineInstanceSpec) { pod.Remove(s, "old") })
	g.reconcile()
	g.has("root old")
	assert.Assert(t, g.restartRequired())
}

// TestHotplugRefused: what the instance does not take is the VM's failure, and no conflict is.
func TestHotplugRefused(t *testing.T) {
	g := newRig(t)
	g.add(kubevirt.RunStrategyAlways, root)
	g.reconcile()
	g.phase(kubevirt.Running)
	g.template(func(s *kubevirt.VirtualMachineInstanceSpec) { plug(s, "data", "b") })
	refusal := error(apierrors.NewConflict(kubevirt.Resource("virtualmachineinstances"), "web", errors.New("changed")))
	g.Fail = func(verb string, o client.Object) error {
		if _, is := o.(*kubevirt.VirtualMachineInstance); is && verb == "patch" {
			return refusal
		}
		return nil
	}
	if _, err := g.try(); !apierrors.IsConflict(err) {
		t.Errorf("error %v", err)
	}
	assert.Assert(t, g.failure() == nil)
	refusal = apierrors.NewForbidden(kubevirt.Resource("virtualmachineinstances"), "web", errors.New("no"))
	if _, err := g.try(); err == nil {
		t.Error("it is not tried again")
	}
	assert.Equal(t, g.failure().Reason, "HotPlugVolumeError")
	g.Fail = nil
	g.reconcile()
	assert.Assert(t, g.failure() == nil)
	g.has("root data")
}
