package vm

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	instances "github.com/nodevirt/nodevirt/controller/vmi"
)

// migratedVolume is a volume of a running instance whose disk a migration copies to another PVC.
type migratedVolume = kubevirt.StorageMigratedVolumeInfo

// volumeMigrations has the disks of running instances copied to the PVCs that their VirtualMachines' templates name
// now, by the strategy Migration of updates of volumes. The instance's status has the volumes from the request to the
// end of the migration; its spec has the PVCs that its guest uses.
type volumeMigrations struct {
	client      client.Client
	dataVolumes DataVolumes
	events      events.EventRecorder
}

// volumeRetry is when to look again whether migrations that were cancelled have ended.
const volumeRetry = 2 * time.Second

// follow requests, undoes and completes the migration of an instance's volumes. Why is why it does not request it;
// wait is when to look again, 0 for not at all. Staged changes wait for a restart. T returns the template with what the types add, as of [grown].
func (m *volumeMigrations) follow(
	ctx context.Context, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance, staged bool,
	t func(*kubevirt.VirtualMachineInstance) (*kubevirt.VirtualMachineInstanceTemplateSpec, error),
) (why string, wait time.Duration, err error) {
	if vmi == nil || vmi.DeletionTimestamp != nil || vmi.Status.Phase != kubevirt.Running || vm.Spec.Template == nil {
		return "", 0, nil
	}
	asks := m.asked(vm, vmi)
	moving := vmi.Status.MigratedVolumes
	if len(moving) == 0 {
		switch {
		case len(asks) == 0:
			return "", 0, nil
		case staged:
			return "cannot migrate the volumes: changes wait for a restart by vmRolloutStrategy Stage", 0, nil
		}
		why, err := m.request(ctx, vmi, asks)
		return why, 0, err
	}
	if there, err := m.arrived(ctx, vmi); err != nil {
		return "", 0, err
	} else if there {
		return "", 0, m.complete(ctx, vm, vmi, t)
	}
	if sameMoves(moving, asks) {
		if instances.Migrating(vmi) {
			return "", 0, nil
		}
		c, err := m.look(ctx, vm, vmi)
		if err != nil {
			return "", 0, err
		}
		if c.Status == corev1.ConditionFalse {
			wait = volumeRetry
		}
		return "", wait, m.write(ctx, vmi, func(s *kubevirt.VirtualMachineInstanceStatus) { setVolumesChange(s, c) })
	}
	// First: no other migration begins then.
	if err := m.write(ctx, vmi, func(s *kubevirt.VirtualMachineInstanceStatus) {
		setVolumesChange(s, kubevirt.VirtualMachineInstanceCondition{
			Status: corev1.ConditionFalse, Reason: kubevirt.VirtualMachineInstanceReasonVolumesChangeCancellation,
			Message: "The template names other PVCs again: the guest goes on with its own",
		})
	}); err != nil {
		return "", 0, err
	}
	under, err := m.cancel(ctx, vmi)
	if err != nil || under {
		return "", volumeRetry, err
	}
	return "", 0, m.write(ctx, vmi, func(s *kubevirt.VirtualMachineInstanceStatus) { s.MigratedVolumes = nil })
}

// asked returns the volumes whose PVCs differ between a VirtualMachine's template and its instance, if they should
// migrate, by their names and PVCs alone.
func (m *volumeMigrations) asked(vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance) []migratedVolume {
	s := vm.Spec.UpdateVolumesStrategy
	if s == nil || *s != kubevirt.UpdateVolumesStrategyMigration {
		return nil
	}
	var all []migratedVolume
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		if slices.Contains(pod.Given(vmi), v.Name) && !has(vmi, v.Name) {
			continue // it is exchanged: the guest has nothing on it yet
		}
		from, to := pod.ClaimOf(v), pod.ClaimOf(pod.VolumeOf(&vm.Spec.Template.Spec, v.Name))
		if from != "" && to != "" && from != to {
			all = append(all, migratedVolume{
				VolumeName: v.Name, SourcePVCInfo: &kubevirt.PersistentVolumeClaimInfo{ClaimName: from},
				DestinationPVCInfo: &kubevirt.PersistentVolumeClaimInfo{ClaimName: to},
			})
		}
	}
	return all
}

// has reports whether the guest of an instance has a volume.
func has(vmi *kubevirt.VirtualMachineInstance, volume string) bool {
	return slices.ContainsFunc(vmi.Status.VolumeStatus, func(s kubevirt.VolumeStatus) bool {
		return s.Name == volume && (s.HotplugVolume == nil || s.Phase == kubevirt.VolumeReady)
	})
}

// sameMoves reports whether two lists have the same volumes with the same PVCs.
func sameMoves(a, b []migratedVolume) bool {
	return slices.EqualFunc(a, b, func(a, b migratedVolume) bool {
		return a.VolumeName == b.VolumeName && claim(a.SourcePVCInfo) == claim(b.SourcePVCInfo) && claim(a.DestinationPVCInfo) == claim(b.DestinationPVCInfo)
	})
}

func claim(info *kubevirt.PersistentVolumeClaimInfo) string {
	if info == nil {
		return ""
	}
	return info.ClaimName
}

// request notes in the instance's status which volumes are to migrate, if they can; why says why not.
func (m *volumeMigrations) request(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, asks []migratedVolume) (why string, err error) {
	pvcs := pod.PVCObjects{}
	for _, use := range pod.PVCs(&vmi.Spec) {
		if err := m.addPVC(ctx, pvcs, vmi.Namespace, use.Name); err != nil {
			return "", err
		}
	}
	if why := immovable(vmi, asks, pvcs); why != "" {
		return why, nil
	}
	for i := range asks {
		to := asks[i].DestinationPVCInfo.ClaimName
		if err := m.addPVC(ctx, pvcs, vmi.Namespace, to); err != nil {
			return "", err
		}
		asks[i].SourcePVCInfo = cmp.Or(pvcs.Info(asks[i].SourcePVCInfo.ClaimName), asks[i].SourcePVCInfo)
		asks[i].DestinationPVCInfo = cmp.Or(pvcs.Info(to), asks[i].DestinationPVCInfo)
	}
	return "", m.write(ctx, vmi, func(s *kubevirt.VirtualMachineInstanceStatus) {
		s.MigratedVolumes = asks
	})
}

func (m *volumeMigrations) addPVC(ctx context.Context, all pod.PVCObjects, namespace, name string) error {
	pvc := new(corev1.PersistentVolumeClaim)
	err := m.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pvc)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read PVC %s/%s: %w", namespace, name, err)
	}
	all[name] = pvc
	return nil
}

// immovable returns why an instance's volumes cannot migrate, in KubeVirt's words; "" if they can.
func immovable(vmi *kubevirt.VirtualMachineInstance, asks []migratedVolume, pvcs pod.PVCObjects) string {
	able, c := instances.IsMigratable(vmi)
	if !able && (c == nil || c.Reason != kubevirt.VirtualMachineInstanceReasonDisksNotMigratable) {
		if c == nil {
			return "cannot migrate the VM: it is not known yet whether it can migrate"
		}
		return "cannot migrate the VM. " + c.Message
	}
	moves := func(volume string) bool {
		return slices.ContainsFunc(asks, func(a migratedVolume) bool { return a.VolumeName == volume })
	}
	for _, use := range pod.PVCs(&vmi.Spec) {
		pvc := pvcs[use.Name]
		shared := pvc != nil && slices.Contains(pvc.Spec.AccessModes, corev1.ReadWriteMany)
		switch {
		case !moves(use.Volume) && !shared && !use.Ephemeral:
			return fmt.Sprintf("cannot migrate the VM. The volume %s is RWO and not included in the migration volumes", use.Volume)
		case !moves(use.Volume):
		case use.Filesystem, use.ReadOnly, use.LUN, use.Shareable, use.Ephemeral:
			return fmt.Sprintf("cannot migrate the volume %s: the guest does not have it as a disk that it alone writes", use.Volume)
		}
	}
	return ""
}

// arrived reports whether the instance's guest runs with the PVCs to which its disks were copied.
func (m *volumeMigrations) arrived(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (bool, error) {
	if instances.Migrating(vmi) {
		return false, nil
	}
	p := new(corev1.Pod)
	if err := m.client.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: pod.Current(vmi)}, p); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return pod.IsAtDestinations(vmi, p), nil
}

// complete gives the instance's spec the PVCs that its guest uses now.
func (m *volumeMigrations) complete(
	ctx context.Context, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance,
	template func(*kubevirt.VirtualMachineInstance) (*kubevirt.VirtualMachineInstanceTemplateSpec, error),
) error {
	was, err := digest(vm, vmi)
	if err != nil {
		return err
	}
	followed := was == vmi.Annotations[pod.AnnotationTemplate] // in all else
	t, err := template(vmi)
	if err != nil {
		return err
	}
	before := vmi.DeepCopy()
	next := pod.AtDestinations(vmi)
	for _, moved := range vmi.Status.MigratedVolumes { // the template may name the DataVolume
		wanted := pod.VolumeOf(&vm.Spec.Template.Spec, moved.VolumeName)
		if v := pod.VolumeOf(&next.Spec, moved.VolumeName); v != nil && pod.ClaimOf(wanted) == pod.ClaimOf(v) {
			v.VolumeSource = *wanted.VolumeSource.DeepCopy()
		}
	}
	next.Status.MigratedVolumes = nil // which the digests leave out
	if followed {
		if next.Annotations[pod.AnnotationTemplate], err = digest(vm, next); err != nil {
			return err
		}
		if next.Annotations[pod.AnnotationFixed], err = fixedDigest(vm, cmp.Or(t, vm.Spec.Template), next); err != nil {
			return err
		}
	}
	next.Status = before.Status
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := m.client.Patch(ctx, next, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("change the volumes of VMI %s: %w", vmi.Name, err))
	}
	*vmi = *next
	m.events.Eventf(vm, vmi, corev1.EventTypeNormal, "VolumesMigrated", "Migrate", "The disks of virtual machine instance %s are on their new PVCs", vmi.Name)
	return m.write(ctx, vmi, func(s *kubevirt.VirtualMachineInstanceStatus) {
		s.MigratedVolumes = nil
		s.Conditions = slices.DeleteFunc(s.Conditions, isVolumesChange)
	})
}

// cancel deletes the migrations that were made for the instance's volumes, and reports whether one has not ended yet.
func (m *volumeMigrations) cancel(ctx context.Context, vmi *kubevirt.VirtualMachineInstance) (under bool, err error) {
	var all kubevirt.VirtualMachineInstanceMigrationList
	if err := m.client.List(ctx, &all, client.InNamespace(vmi.Namespace)); err != nil {
		return false, fmt.Errorf("list migrations of VMI %s: %w", vmi.Name, err)
	}
	for i := range all.Items {
		one := &all.Items[i]
		if _, ours := one.Labels[kubevirt.VolumesUpdateMigration]; !ours || one.Spec.VMIName != vmi.Name || one.IsFinal() {
			continue
		}
		under = true
		if one.DeletionTimestamp != nil {
			continue
		}
		if err := client.IgnoreNotFound(m.client.Delete(ctx, one)); err != nil {
			return true, fmt.Errorf("cancel migration %s: %w", one.Name, err)
		}
	}
	return under || instances.Migrating(vmi), nil
}

// look returns the condition of an instance whose volumes are to migrate: it is false as long as CDI has to make a PVC.
func (m *volumeMigrations) look(
	ctx context.Context, vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance,
) (kubevirt.VirtualMachineInstanceCondition, error) {
	c := kubevirt.VirtualMachineInstanceCondition{
		Status: corev1.ConditionTrue, Reason: "VolumesChange", Message: "The disks are copied to the PVCs that the template names",
	}
	for _, moved := range vmi.Status.MigratedVolumes {
		v := pod.VolumeOf(&vm.Spec.Template.Spec, moved.VolumeName)
		if v == nil || v.DataVolume == nil {
			continue
		}
		name := claim(moved.DestinationPVCInfo)
		s, err := m.dataVolumes.Get(ctx, vmi.Namespace, name)
		switch {
		case err != nil:
			return c, err
		case !s.Served, s.Found && (s.Usable() || s.Unbound()):
		case !s.Found:
			pvc := new(corev1.PersistentVolumeClaim) // which may be without a DataVolume
			err := m.client.Get(ctx, client.ObjectKey{Namespace: vmi.Namespace, Name: name}, pvc)
			if client.IgnoreNotFound(err) != nil {
				return c, fmt.Errorf("read PVC %s/%s: %w", vmi.Namespace, name, err)
			}
			if err != nil {
				c.Status, c.Message = corev1.ConditionFalse, "One of the destination volumes doesn't exist: DataVolume "+name
			}
		default:
			c.Status, c.Message = corev1.ConditionFalse, "One of the destination volumes is not ready: DataVolume "+name+" is "+cmp.Or(s.Phase, "new")
		}
	}
	return c, nil
}

func isVolumesChange(c kubevirt.VirtualMachineInstanceCondition) bool {
	return c.Type == kubevirt.VirtualMachineInstanceVolumesChange
}

// setVolumesChange sets the condition, whose time changes with its status alone.
func setVolumesChange(s *kubevirt.VirtualMachineInstanceStatus, c kubevirt.VirtualMachineInstanceCondition) {
	c.Type, c.LastTransitionTime = kubevirt.VirtualMachineInstanceVolumesChange, metav1.Now()
	at := slices.IndexFunc(s.Conditions, isVolumesChange)
	if at < 0 {
		s.Conditions = append(s.Conditions, c)
		return
	}
	if s.Conditions[at].Status == c.Status {
		c.LastTransitionTime = s.Conditions[at].LastTransitionTime
	}
	s.Conditions[at] = c
}

// write changes the instance's status, if the change is one.
func (m *volumeMigrations) write(ctx context.Context, vmi *kubevirt.VirtualMachineInstance, change func(*kubevirt.VirtualMachineInstanceStatus)) error {
	before := vmi.DeepCopy()
	change(&vmi.Status)
	if equality.Semantic.DeepEqual(before.Status, vmi.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := m.client.Status().Patch(ctx, vmi, patch); err != nil {
		return client.IgnoreNotFound(fmt.Errorf("write status of VMI %s: %w", vmi.Name, err))
	}
	return nil
}

// unrecovered returns the volumes of which it is not known whether the data is on their old PVCs or on the new ones,
// since the instance ended before their migration did. The user's word is the template: the old PVCs, or another
// strategy.
func unrecovered(vm *kubevirt.VirtualMachine, vmi *kubevirt.VirtualMachineInstance) []migratedVolume {
	if vmi != nil && !vmi.IsFinal() {
		return vmi.Status.MigratedVolumes
	}
	var all []migratedVolume
	if state := vm.Status.VolumeUpdateState; state != nil && state.VolumeMigrationState != nil {
		all = state.VolumeMigrationState.MigratedVolumes
	}
	if vmi != nil && len(vmi.Status.MigratedVolumes) > 0 {
		all = vmi.Status.MigratedVolumes
	}
	s := vm.Spec.UpdateVolumesStrategy
	if s == nil || *s != kubevirt.UpdateVolumesStrategyMigration || vm.Spec.Template == nil {
		return nil
	}
	if !slices.ContainsFunc(all, func(one migratedVolume) bool {
		return pod.ClaimOf(pod.VolumeOf(&vm.Spec.Template.Spec, one.VolumeName)) != claim(one.SourcePVCInfo)
	}) {
		return nil
	}
	return all
}

// volumeUpdateState is what a VirtualMachine's status says of volumes that migrate.
func volumeUpdateState(volumes []migratedVolume) *kubevirt.VolumeUpdateState {
	if len(volumes) == 0 {
		return nil
	}
	return &kubevirt.VolumeUpdateState{VolumeMigrationState: &kubevirt.VolumeMigrationState{MigratedVolumes: volumes}}
}

// beforeMoves returns a template's spec with the volumes of an instance that migrate as the instance has them.
func beforeMoves(
	spec kubevirt.VirtualMachineInstanceSpec, vmi *kubevirt.VirtualMachineInstance, refused []migratedVolume,
) kubevirt.VirtualMachineInstanceSpec {
	if vmi == nil || len(vmi.Status.MigratedVolumes)+len(refused) == 0 {
		return spec
	}
	former := spec.DeepCopy()
	for _, moved := range slices.Concat(vmi.Status.MigratedVolumes, refused) {
		v, own := pod.VolumeOf(former, moved.VolumeName), pod.VolumeOf(&vmi.Spec, moved.VolumeName)
		if v != nil && own != nil && pod.ClaimOf(v) == claim(moved.DestinationPVCInfo) {
			v.VolumeSource = own.VolumeSource
		}
	}
	return *former
}
