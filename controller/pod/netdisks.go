package pod

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// NetworkDisks are the PVCs of an instance that QEMU opens over the network, by the names
// of the instance's volumes.
type NetworkDisks map[string]vmspec.NetworkDisk

// The ports of portals and monitors that name none.
const (
	portISCSI = "3260"
	portCeph  = "6789"
)

// NetworkDisk returns what QEMU opens for a PVC that is bound to a volume; false if the
// volume is of a type that the kubelet must mount. An error says why neither works.
func NetworkDisk(use PVC, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) (vmspec.NetworkDisk, bool, error) {
	disk := vmspec.NetworkDisk{
		PVC: use.Name, Volume: pv.Name, ReadOnly: use.ReadOnly,
		Shared: slices.Contains(pvc.Spec.AccessModes, corev1.ReadWriteMany),
	}
	var ref *corev1.SecretReference
	switch {
	case use.Ephemeral, use.Filesystem: // the node reads it below an overlay, or its files
		return disk, false, nil
	case pv.Spec.ISCSI != nil:
		s := pv.Spec.ISCSI
		disk.ReadOnly = disk.ReadOnly || s.ReadOnly
		disk.ISCSI = &vmspec.ISCSIVolume{
			Portals: withPorts(portISCSI, append([]string{s.TargetPortal}, s.Portals...)), Target: s.IQN, LUN: int(s.Lun),
		}
		if s.InitiatorName != nil {
			disk.ISCSI.Initiator = *s.InitiatorName
		}
		if s.SessionCHAPAuth && s.SecretRef == nil {
			return disk, true, unusable(disk, errors.New("chapAuthSession needs a secretRef"))
		}
		if s.SessionCHAPAuth {
			ref = s.SecretRef
		}
	case pv.Spec.RBD != nil:
		s := pv.Spec.RBD
		disk.ReadOnly = disk.ReadOnly || s.ReadOnly
		disk.RBD = &vmspec.RBDVolume{
			Monitors: withPorts(portCeph, s.CephMonitors), Pool: s.RBDPool, Image: s.RBDImage, User: s.RadosUser,
		}
		ref = s.SecretRef
	// Not ceph-csi's: the driver's configuration has the monitors of a clusterID, and its
	// Secret, a key to the whole pool, must not get to namespaces of VMs.
	default:
		return disk, false, nil
	}
	if ref != nil && ref.Namespace != "" && ref.Namespace != pvc.Namespace {
		return disk, true, unusable(disk, fmt.Errorf("its Secret %s is in namespace %s, and pods mount only Secrets of their namespace; "+
			"create the Secret in namespace %s, and name it in the PersistentVolume", ref.Name, ref.Namespace, pvc.Namespace))
	}
	if ref != nil {
		disk.SecretName, disk.SecretMount = ref.Name, UniqueName(use.Volume, maxLabel, "credentials of "+use.Volume)
	}
	if err := disk.Check(); err != nil {
		return disk, true, unusable(disk, err)
	}
	return disk, true, nil
}

// unusable names the objects that someone must change.
func unusable(disk vmspec.NetworkDisk, err error) error {
	return fmt.Errorf("PVC %s: PersistentVolume %s: %w", disk.PVC, disk.Volume, err)
}

// withPorts returns addresses with a port, each once.
func withPorts(port string, given []string) []string {
	var all []string
	for _, address := range given {
		if _, _, err := net.SplitHostPort(address); err != nil {
			address = net.JoinHostPort(strings.Trim(address, "[]"), port)
		}
		if !slices.Contains(all, address) {
			all = append(all, address)
		}
	}
	return all
}

// addNetworkDisks writes for the node where the network disks are.
func addNetworkDisks(annotations map[string]string, disks NetworkDisks) error {
	if len(disks) == 0 {
		return nil
	}
	text, err := json.Marshal(disks)
	if err != nil {
		return fmt.Errorf("encode network disks: %w", err)
	}
	annotations[vmspec.AnnotationNetworkDisks] = string(text)
	return nil
}

// addTo lists the PVC of a network disk among the pod's volumes, and no container mounts
// it: so Kubernetes binds, protects and attaches it. The container mounts the Secret.
func (c pvcVolume) addTo(s *corev1.PodSpec, v vmspec.PodVolume) {
	v.Source.PersistentVolumeClaim.ReadOnly = c.ReadOnly
	s.Volumes = append(s.Volumes, corev1.Volume{Name: v.Name, VolumeSource: *v.Source})
	name := c.network.SecretMount
	if name == "" {
		return
	}
	s.Volumes = append(s.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: c.network.SecretName},
	}})
	to := &s.Containers[0]
	to.VolumeMounts = append(to.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path.Join(mountRoot, name), ReadOnly: true})
}
