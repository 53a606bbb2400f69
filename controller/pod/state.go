package pod

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const (
	// StateLabel is on the PVC with a VM's persistent state, and has the VM's name. It and the names are
	// KubeVirt's.
	StateLabel = "persistent-state-for"
	// StateVolume is the pod's volume, and the volume in the instance's status, of that PVC.
	StateVolume = StateLabel + "-this-vm"
	// stateSize has room for the largest UEFI variables and a TPM.
	stateSize = "10Mi"
)

// KeepsState reports whether an instance needs a PVC for persistent state.
func KeepsState(vmi *kubevirt.VirtualMachineInstance) bool {
	return vmspec.PersistentState(&vmi.Spec) != nil
}

// stateOwner returns the object with which the state of an instance ends: its VirtualMachine, or else
// the instance.
func stateOwner(vmi *kubevirt.VirtualMachineInstance) metav1.OwnerReference {
	if o := metav1.GetControllerOf(vmi); o != nil && o.Kind == kubevirt.VirtualMachineGroupVersionKind.Kind {
		return *o
	}
	return *metav1.NewControllerRef(vmi, kubevirt.VirtualMachineInstanceGroupVersionKind)
}

// StateOptions are of the PVCs with the persistent state of instances.
type StateOptions struct {
	// Class is the storage class; empty for the cluster's default.
	Class string
	// Shared has several nodes mount the PVC, so that migrations keep it.
	Shared bool
}

// NewState returns the PVC for the persistent state of an instance. All instances of a VirtualMachine have
// the same, and another VirtualMachine of its name has another.
func NewState(vmi *kubevirt.VirtualMachineInstance, o StateOptions) *corev1.PersistentVolumeClaim {
	owner, mode, access := stateOwner(vmi), corev1.PersistentVolumeFilesystem, corev1.ReadWriteOnce
	if o.Shared {
		access = corev1.ReadWriteMany
	}
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vmi.Namespace, Name: UniqueName(StateLabel+"-"+vmi.Name, maxName, string(owner.UID)),
			Labels: map[string]string{StateLabel: LabelOf(vmi.Name)}, OwnerReferences: []metav1.OwnerReference{owner},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{access}, VolumeMode: &mode,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(stateSize)}},
		},
	}
	if o.Class != "" {
		pvc.Spec.StorageClassName = &o.Class
	}
	return pvc
}

// MovedState returns the PVC to which the persistent state of an instance moves from another one, by a migration. It
// has no [StateLabel] before the guest has moved.
func MovedState(vmi *kubevirt.VirtualMachineInstance, migration types.UID, from *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vmi.Namespace, Name: MovedStateName(vmi.Name, migration), OwnerReferences: []metav1.OwnerReference{stateOwner(vmi)},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: from.Spec.AccessModes, VolumeMode: from.Spec.VolumeMode, Resources: from.Spec.Resources,
			StorageClassName: from.Spec.StorageClassName,
		},
	}
}

// MovedStateName returns the name of the PVC of [MovedState].
func MovedStateName(vmi string, migration types.UID) string {
	return UniqueName(StateLabel+"-"+vmi, maxName, string(migration))
}

// StateOf returns the name of the PVC with persistent state that a pod has; "" for none.
func StateOf(p *corev1.Pod) string {
	if p == nil {
		return ""
	}
	for _, v := range p.Spec.Volumes {
		if c := v.PersistentVolumeClaim; v.Name == StateVolume && c != nil {
			return c.ClaimName
		}
	}
	return ""
}

// FindState returns the PVC among some that has the persistent state of an instance; nil if none has. A
// PVC without an owner is one that a user has kept of an earlier VirtualMachine. The newest has the state where it has
// moved and the former PVC is left.
func FindState(vmi *kubevirt.VirtualMachineInstance, pvcs []corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	return findState(vmi.Name, stateOwner(vmi).UID, pvcs)
}

// FindVMState is FindState for the instances of a VirtualMachine.
func FindVMState(vm *kubevirt.VirtualMachine, pvcs []corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	return findState(vm.Name, vm.UID, pvcs)
}

// SavedState is the name of the volume that a VirtualMachine's persistent state is in snapshots of it. It is
// KubeVirt's.
func SavedState(vm string) string { return LabelOf(StateLabel + "-" + vm) }

// IsSavedState reports whether a volume in a snapshot is the persistent state of the VirtualMachine.
func IsSavedState(volume string) bool { return strings.HasPrefix(volume, StateLabel+"-") }

func findState(name string, owner types.UID, pvcs []corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	var own, kept *corev1.PersistentVolumeClaim
	for i := range pvcs {
		c := &pvcs[i]
		if c.DeletionTimestamp != nil || c.Labels[StateLabel] != LabelOf(name) {
			continue
		}
		switch of := metav1.GetControllerOf(c); {
		case of != nil && of.UID == owner && (own == nil || own.CreationTimestamp.Before(&c.CreationTimestamp)):
			own = c
		case of == nil && (kept == nil || c.Name < kept.Name):
			kept = c
		}
	}
	if own != nil {
		return own
	}
	return kept
}

// StatePVC is how an instance uses the PVC of a name for its persistent state.
func StatePVC(name string) PVC { return PVC{Volume: StateVolume, Name: name, Filesystem: true} }

// addState has the VM's container mount the PVC with the instance's persistent state.
func addState(s *corev1.PodSpec, vmi *kubevirt.VirtualMachineInstance, pvc string) error {
	if !KeepsState(vmi) {
		return nil
	}
	if i := slices.IndexFunc(vmi.Spec.Volumes, func(v kubevirt.Volume) bool { return v.Name == StateVolume }); i >= 0 {
		return fmt.Errorf("spec.volumes[%d].name: %s is the name of the volume with persistent state; use another name", i, StateVolume)
	}
	if pvc == "" {
		return errors.New("the instance has no PVC for its persistent state")
	}
	s.Volumes = append(s.Volumes, corev1.Volume{Name: StateVolume, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: pvc},
	}})
	c := &s.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: StateVolume, MountPath: vmspec.StatePath})
	return nil
}
