package vm

import (
	"slices"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// withPVC adds a volume with a PVC, and its disk.
func withPVC(name, claim string) func(*kubevirt.VirtualMachine) {
	return func(vm *kubevirt.VirtualMachine) {
		s := &vm.Spec.Template.Spec
		s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, kubevirt.Disk{Name: name, DiskDevice: kubevirt.DiskDevice{Disk: new(kubevirt.DiskTarget)}})
		s.Volumes = append(s.Volumes, kubevirt.Volume{Name: name, VolumeSource: pvcSource(claim)})
	}
}

func pvcSource(claim string) kubevirt.VolumeSource {
	return kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
}

// toPVC has the template name another PVC for its first volume, by a migration.
func toPVC(claim string) func(*kubevirt.VirtualMachine) {
	return func(vm *kubevirt.VirtualMachine) {
		vm.Spec.UpdateVolumesStrategy = new(kubevirt.UpdateVolumesStrategyMigration)
		vm.Spec.Template.Spec.Volumes[0].VolumeSource = pvcSource(claim)
	}
}

// onDisks is a VM that runs with PVCs, of which the first is "old", and "new" exists, too.
func onDisks(t *testing.T, others ...func(*kubevirt.VirtualMachine)) *rig {
	t.Helper()
	g := newRig(t)
	for _, name := range []string{"old", "new", "other"} {
		g.Add(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}})
	}
	g.add(always, append([]func(*kubevirt.VirtualMachine){withPVC("data", "old")}, others...)...)
	g.reconcile()
	g.phase(kubevirt.Running, func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.UID = "vmi"
		vmi.Status.Conditions = []kubevirt.VirtualMachineInstanceCondition{{Type: kubevirt.VirtualMachineInstanceIsMigratable,
			Status: corev1.ConditionFalse, Reason: kubevirt.VirtualMachineInstanceReasonDisksNotMigratable}}
	})
	g.reconcile()
	return g
}

// moves is what the statuses of the instance and of the VM say of the volumes that migrate, and the VM's conditions.
func (g *rig) moves() string {
	g.t.Helper()
	var all []string
	var lists [][]migratedVolume
	if vmi := g.vmi(); vmi != nil {
		lists = append(lists, vmi.Status.MigratedVolumes)
		for _, c := range vmi.Status.Conditions {
			if isVolumesChange(c) {
				all = append(all, "VolumesChange "+string(c.Status))
			}
		}
	}
	if s := g.vm().Status.VolumeUpdateState; s != nil {
		lists = append(lists, s.VolumeMigrationState.MigratedVolumes)
	} else {
		lists = append(lists, nil)
	}
	for _, list := range lists {
		text := "none"
		for _, m := range list {
			text = m.VolumeName + " " + claim(m.SourcePVCInfo) + ">" + claim(m.DestinationPVCInfo)
		}
		all = append(all, text)
	}
	for _, c := range g.vm().Status.Conditions {
		if c.Type == kubevirt.VirtualMachineRestartRequired || c.Type == kubevirt.VirtualMachineManualRecoveryRequired {
			all = append(all, string(c.Type)+" "+c.Message)
		}
	}
	return strings.Join(all, "; ")
}

func (g *rig) wantMoves(want string) {
	g.t.Helper()
	g.reconcile()
	g.reconcile()
	if got := g.moves(); got != want {
		g.t.Errorf("%s; want %s", got, want)
	}
}

const moving = "VolumesChange True; data old>new; data old>new"

// TestVolumeMigration: the guest keeps its PVC until it runs with another one, and the VM needs no restart then.
func TestVolumeMigration(t *testing.T) {
	g := onDisks(t)
	g.wantMoves("none; none")
	g.edit(toPVC("new"))
	g.wantMoves(moving)
	assert.Equal(t, pod.ClaimOf(&g.vmi().Spec.Volumes[0]), "old")
	assert.DeepEqual(t, g.vmi().Status.MigratedVolumes[0].DestinationPVCInfo.AccessModes, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce})
	g.Writes()
	g.reconcile()
	g.expect("")

	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: pod.Current(g.vmi())}}
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "new"}}}}
	g.Add(t, p)
	g.wantMoves("none; none")
	assert.Equal(t, pod.ClaimOf(&g.vmi().Spec.Volumes[0]), "new")
	g.edit(toPVC("old"))
	g.reconcile()
	assert.Equal(t, claim(g.vmi().Status.MigratedVolumes[0].DestinationPVCInfo), "old")
}

// TestVolumeMigrationCancelled: a template that names the former PVC again ends the migrations that were made for another
// one, and no others.
func TestVolumeMigrationCancelled(t *testing.T) {
	g := onDisks(t)
	g.edit(toPVC("new"))
	g.wantMoves(moving)
	for name, labels := range map[string]map[string]string{"own": {kubevirt.VolumesUpdateMigration: "web"}, "users": nil} {
		m := &kubevirt.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{
			Namespace: web.Namespace, Name: name, Labels: labels, Finalizers: []string{kubevirt.VirtualMachineInstanceMigrationFinalizer}}}
		m.Spec.VMIName = web.Name
		g.Add(t, m)
	}
	g.edit(toPVC("old"))
	if wait := g.reconcile().RequeueAfter; wait != volumeRetry {
		t.Errorf("it looks again after %s", wait)
	}
	own := &kubevirt.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "own"}}
	assert.Assert(t, g.Exists(t, own) && own.DeletionTimestamp != nil)
	g.wantMoves(strings.Replace(moving, "True", "False", 1)) // so that no other migration begins
	fakecluster.Change(t, g.Cluster, own, func(m *kubevirt.VirtualMachineInstanceMigration) { m.Finalizers = nil })
	g.wantMoves("VolumesChange False; none; none")
	assert.Assert(t, g.Exists(t, &kubevirt.VirtualMachineInstanceMigration{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "users"}}))
}

// TestVolumeRecovery: a VM that ended before its disks were copied does not start until its user says where the data is.
func TestVolumeRecovery(t *testing.T) {
	const recovery = "ManualRecoveryRequired The VM ended before its disks were copied: have the template name the PVCs that have its data, or remove updateVolumesStrategy if it does"
	for name, says := range map[string]func(*kubevirt.VirtualMachine){
		"the former PVC": toPVC("old"),
		"the new one":    func(vm *kubevirt.VirtualMachine) { vm.Spec.UpdateVolumesStrategy = nil },
	} {
		t.Run(name, func(t *testing.T) {
			g := onDisks(t)
			g.edit(toPVC("new"))
			g.wantMoves(moving)
			g.phase(kubevirt.Failed)
			g.reconcile()
			g.ended()
			g.wantMoves("data old>new; " + recovery)
			g.now = g.now.Add(time.Hour) // it may start by its strategy
			g.wantMoves("data old>new; " + recovery)
			g.edit(says)
			g.reconcile()
			if g.vmi() == nil {
				t.Error("the VM does not start")
			}
			g.wantMoves("none; none")
		})
	}
}

// hotpluggable has running VMs get the volume "more".
func hotpluggable(vm *kubevirt.VirtualMachine) {
	vm.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim.Hotpluggable = true
	vm.Spec.Template.Spec.Domain.Devices.Disks[1].Disk.Bus = kubevirt.DiskBusSCSI
}

// gotMore gives the guest the volume "more".
func gotMore(g *rig) {
	g.phase(kubevirt.Running, func(vmi *kubevirt.VirtualMachineInstance) {
		vmi.Status.VolumeStatus = []kubevirt.VolumeStatus{{Name: "data"}, {Name: "more", HotplugVolume: new(kubevirt.HotplugVolumeStatus), Phase: kubevirt.VolumeReady}}
	})
}

// moreTo has the template name another PVC for the volume "more", by a migration.
func moreTo(claim string) func(*kubevirt.VirtualMachine) {
	return func(vm *kubevirt.VirtualMachine) {
		vm.Spec.UpdateVolumesStrategy = new(kubevirt.UpdateVolumesStrategyMigration)
		vm.Spec.Template.Spec.Volumes[1].PersistentVolumeClaim.ClaimName = claim
	}
}

// TestPluggedVolumeMigration: the disk on a volume that the guest has got since it runs is copied, and is not exchanged.
func TestPluggedVolumeMigration(t *testing.T) {
	g := onDisks(t, withPVC("more", "other"), hotpluggable)
	gotMore(g)
	g.edit(moreTo("another"))
	g.wantMoves("none; none; RestartRequired cannot migrate the VM. The volume data is RWO and not included in the migration volumes")
	g.edit(toPVC("new"))
	const moving = "VolumesChange True; more other>another; more other>another"
	g.wantMoves(moving)
	more := func() *kubevirt.Volume { return pod.VolumeOf(&g.vmi().Spec, "more") }
	assert.Equal(t, pod.ClaimOf(more()), "other")
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: pod.Current(g.vmi()),
		Annotations: map[string]string{vmspec.AnnotationCopiedVolumes: "more=another"}}}
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "new"}}}}
	g.Add(t, p)
	g.wantMoves("none; none")
	assert.Equal(t, pod.ClaimOf(more()), "another")
	assert.Assert(t, more().PersistentVolumeClaim.Hotpluggable)
	assert.Equal(t, pod.ClaimOf(&g.vmi().Spec.Volumes[0]), "new")
	assert.DeepEqual(t, pod.Given(g.vmi()), []string{"more"})
}

// TestRefusedMoveUnplugs: the volume that keeps another one from its move goes when the template does not name it, and
// the move follows.
func TestRefusedMoveUnplugs(t *testing.T) {
	g := onDisks(t, withPVC("more", "other"), hotpluggable)
	gotMore(g)
	g.edit(toPVC("new"))
	g.wantMoves("none; none; RestartRequired cannot migrate the VM. The volume more is RWO and not included in the migration volumes")
	assert.Equal(t, pod.ClaimOf(&g.vmi().Spec.Volumes[0]), "old")
	g.edit(func(vm *kubevirt.VirtualMachine) {
		pod.Remove(&vm.Spec.Template.Spec, "more")
	})
	g.wantMoves(moving)
	assert.Assert(t, pod.VolumeOf(&g.vmi().Spec, "more") == nil)
	assert.Equal(t, pod.ClaimOf(&g.vmi().Spec.Volumes[0]), "old")
}

// TestVolumeThatIsNotPlugged: a volume that the guest has not got yet is exchanged.
func TestVolumeThatIsNotPlugged(t *testing.T) {
	g := onDisks(t, withPVC("more", "other"), hotpluggable)
	g.edit(moreTo("another"))
	g.wantMoves("none; none")
	assert.Equal(t, pod.ClaimOf(pod.VolumeOf(&g.vmi().Spec, "more")), "another")
}

// TestVolumesThatStay: an instance whose volumes can't migrate needs a restart, and says why.
func TestVolumesThatStay(t *testing.T) {
	migratable := func(reason string) func(*rig) {
		return func(g *rig) {
			g.phase(kubevirt.Running, func(vmi *kubevirt.VirtualMachineInstance) {
				at := slices.IndexFunc(vmi.Status.Conditions, func(c kubevirt.VirtualMachineInstanceCondition) bool {
					return c.Type == kubevirt.VirtualMachineInstanceIsMigratable
				})
				vmi.Status.Conditions[at].Reason, vmi.Status.Conditions[at].Message = reason, "VMI uses a device"
			})
		}
	}
	none := func(*rig) {}
	for name, tt := range map[string]struct {
		others []func(*kubevirt.VirtualMachine)
		change func(*rig)
		edit   func(*kubevirt.VirtualMachine)
		want   string
	}{
		"another disk on one node": {[]func(*kubevirt.VirtualMachine){withPVC("more", "other")}, none, toPVC("new"),
			"cannot migrate the VM. The volume more is RWO and not included in the migration volumes"},
		"a device of its node": {nil, migratable(kubevirt.VirtualMachineInstanceReasonHostDeviceNotMigratable), toPVC("new"), "cannot migrate the VM. VMI uses a device"},
		"a disk that it reads": {[]func(*kubevirt.VirtualMachine){func(vm *kubevirt.VirtualMachine) {
			vm.Spec.Template.Spec.Domain.Devices.Disks[0].Disk.ReadOnly = true
		}}, none, toPVC("new"), "cannot migrate the volume data: the guest does not have it as a disk that it alone writes"},
		"another disk that it got": {[]func(*kubevirt.VirtualMachine){withPVC("more", "other"), hotpluggable}, gotMore, toPVC("new"),
			"cannot migrate the VM. The volume more is RWO and not included in the migration volumes"},
		"the strategy Replacement": {nil, none, func(vm *kubevirt.VirtualMachine) {
			toPVC("new")(vm)
			vm.Spec.UpdateVolumesStrategy = new(kubevirt.UpdateVolumesStrategyReplacement)
		}, "the template has changed since the start; restart the VM to apply it"},
		"another change, too": {nil, none, func(vm *kubevirt.VirtualMachine) {
			toPVC("new")(vm)
			vm.Spec.Template.Spec.Hostname = "other"
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := onDisks(t, tt.others...)
			tt.change(g)
			g.edit(tt.edit)
			want := "none; none; RestartRequired " + tt.want
			if tt.want == "" {
				want = moving + "; RestartRequired the template has changed since the start; restart the VM to apply it"
			}
			g.wantMoves(want)
			assert.Equal(t, pod.ClaimOf(&g.vmi().Spec.Volumes[0]), "old")
			if more := pod.VolumeOf(&g.vmi().Spec, "more"); more != nil { // no disk is exchanged
				assert.Equal(t, pod.ClaimOf(more), "other")
			}
		})
	}
}
