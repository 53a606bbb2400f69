package pod

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// hookSockets is the volume with the sockets of hook sidecars, and begins the names of
// other volumes that they have.
const (
	hookSockets = "hook-sidecar-sockets"
	hookPrefix  = "hook-sidecar-"
)

// addHooks adds the hook sidecars that an instance's annotation lists. As sidecars of
// Kubernetes they start before the VM's container, which waits for them, and end after it. Image is that
// of sidecars that name none.
func addHooks(s *corev1.PodSpec, vmi *kubevirt.VirtualMachineInstance, image string, support []kubevirt.SupportContainerResources) error {
	all, err := vmspec.HookSidecars(vmi.Annotations)
	if err != nil || len(all) == 0 {
		return err
	}
	if i := slices.IndexFunc(vmi.Spec.Volumes, func(v kubevirt.Volume) bool { return strings.HasPrefix(v.Name, hookPrefix) }); i >= 0 {
		return fmt.Errorf("spec.volumes[%d].name: %s begins the names of hook sidecars' volumes; use another name", i, hookPrefix)
	}
	limit := resource.MustParse("1Mi")
	s.Volumes = append(s.Volumes, corev1.Volume{Name: hookSockets, VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &limit},
	}})
	s.Containers[0].VolumeMounts = append(s.Containers[0].VolumeMounts,
		corev1.VolumeMount{Name: hookSockets, MountPath: vmspec.HooksPath, ReadOnly: true})
	for i, h := range all {
		h.Image = cmp.Or(h.Image, image)
		c := hookSidecar(s, vmspec.HookName(i), h)
		c.Resources = Support(kubevirt.SideCar, support, c.Resources)
		s.InitContainers = append(s.InitContainers, c)
	}
	return nil
}

// hookSidecar returns the container of a sidecar, and adds its volumes to the pod.
func hookSidecar(s *corev1.PodSpec, name string, h vmspec.HookSidecar) corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	// Requests that equal the limits leave the pod in its class, and fit into any quota.
	few := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	c := corev1.Container{
		Name: name, Image: h.Image, ImagePullPolicy: h.ImagePullPolicy, Command: h.Command, Args: h.Args,
		RestartPolicy:   &always,
		Env:             []corev1.EnvVar{{Name: "CONTAINER_NAME", Value: name}},
		Resources:       corev1.ResourceRequirements{Requests: few, Limits: few},
		SecurityContext: RestrictedContainer(),
		// A sidecar sees its own folder alone.
		VolumeMounts: []corev1.VolumeMount{{Name: hookSockets, MountPath: vmspec.HooksPath, SubPath: name}},
	}
	if m := h.ConfigMap; m != nil {
		mode, volume := int32(0o755), name+"-configmap"
		s.Volumes = append(s.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: m.Name}, DefaultMode: &mode},
		}})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: m.HookPath, SubPath: m.Key, ReadOnly: true})
	}
	if p := h.PVC; p != nil {
		volume := name + "-pvc"
		s.Volumes = append(s.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: p.Name},
		}})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: p.VolumePath})
	}
	return c
}
