package export

import (
	"context"
	"fmt"
	"maps"
	"math"
	"path"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/export/v1"

	"github.com/nodevirt/nodevirt/controller/export/push"
	"github.com/nodevirt/nodevirt/controller/export/server"
	"github.com/nodevirt/nodevirt/controller/pod"
)

const (
	// annotationAuthority of a pod has the certificate by which clients trust its server.
	annotationAuthority = "nodevirt.io/export-authority"
	// annotationConfig of a pod has what it serves; the source may have other volumes since.
	annotationConfig = "nodevirt.io/export-config"
	// gate keeps a pod from being scheduled until its Secret exists.
	gate = "nodevirt.io/export-secret"
	// filesRoot, foldersRoot and devicesRoot are paths in the pod.
	filesRoot   = "/etc/nodevirt-export"
	foldersRoot = "/export-volumes"
	devicesRoot = "/dev/export-volumes"
	// diskGroup owns block devices on nodes whose containerd does not give them to a pod's user. A
	// container gets to those that the pod has.
	diskGroup = 6
	// grace is the time in seconds that the server has to end.
	grace = 5
)

// Serves reports whether a pod is that of an export.
func Serves(p *corev1.Pod) bool {
	owner := metav1.GetControllerOf(p)
	return owner != nil && owner.Kind == "VirtualMachineExport" && strings.HasPrefix(owner.APIVersion, api.SchemeGroupVersion.Group+"/")
}

// Trim keeps of an export's pod what the reconciler reads.
func Trim(p *corev1.Pod) {
	annotations := p.Annotations
	p.ManagedFields, p.Annotations = nil, map[string]string{}
	for _, key := range []string{annotationAuthority, annotationConfig} {
		p.Annotations[key] = annotations[key]
	}
	p.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, SchedulingGates: p.Spec.SchedulingGates}
}

// pod returns the export's pod; nil for none. A pod that still has its gate cannot start: its key
// was lost when the controller ended. It is deleted.
func (r *Reconciler) pod(ctx context.Context, w *work) (*corev1.Pod, error) {
	p := new(corev1.Pod)
	err := r.client.Get(ctx, w.key(podName(w.e)), p)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read pod %s: %w", podName(w.e), err)
	case former(p, w.e):
		// Its export is gone, and the next pod has its name.
		now := metav1.NewTime(r.now())
		p.DeletionTimestamp = &now
		return p, r.remove(ctx, p)
	case !metav1.IsControlledBy(p, w.e):
		return nil, fmt.Errorf("pod %s exists and is not the export's: delete it", p.Name)
	case p.DeletionTimestamp == nil && len(p.Spec.SchedulingGates) > 0:
		return nil, r.remove(ctx, p)
	}
	return p, nil
}

// former reports whether a pod is that of an earlier export of the same name.
func former(p *corev1.Pod, e *vmExport) bool {
	owner := metav1.GetControllerOf(p)
	return Serves(p) && owner.Name == e.Name && owner.UID != e.UID
}

// config returns what the pod's server serves.
func config(w *work, s *source) server.Config {
	c := server.Config{Name: w.e.Name, Manifests: s.spec != nil}
	c.Push, _ = image(w, s)
	if x := w.outside; x != nil && s.spec != nil {
		c.External = x.base(w.e)
	}
	for i, one := range s.volumes {
		v := server.Volume{Name: one.pvc.Name, Block: pod.IsBlock(one.pvc), Disk: one.has == disk}
		v.Path = path.Join(foldersRoot, volumeName(i))
		if v.Block {
			v.Path = path.Join(devicesRoot, volumeName(i))
		}
		c.Volumes = append(c.Volumes, v)
	}
	if s.backup != nil {
		c.Backup = s.backup.serves()
	}
	return c
}

func volumeName(i int) string { return "volume-" + strconv.Itoa(i) }

// left returns the seconds of the export's time that are left, as a pod can have them.
func left(w *work, now time.Time) int64 {
	return min(max(int64(w.expires.Sub(now)/time.Second), 1), math.MaxInt32)
}

// render returns the export's pod.
func (r *Reconciler) render(w *work, s *source, secret string) *corev1.Pod {
	no, yes, end := false, true, int64(grace)
	deadline := left(w, r.now())
	security := pod.RestrictedContainer()
	security.ReadOnlyRootFilesystem = &yes
	c := corev1.Container{
		Name: Container, Image: r.image, Args: []string{server.Flag, filesRoot}, ImagePullPolicy: corev1.PullIfNotPresent,
		Ports: []corev1.ContainerPort{{Name: portName, ContainerPort: server.Port, Protocol: corev1.ProtocolTCP}},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Scheme: corev1.URISchemeHTTPS, Path: server.PathReady, Port: intstr.FromInt32(server.Port),
			}},
			PeriodSeconds: 2, TimeoutSeconds: 5,
		},
		Resources: pod.Support(kubevirt.VMExport, r.support(), resources()), SecurityContext: security,
		// Why it could not open a volume, for the export's status.
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	p := &corev1.Pod{ObjectMeta: w.meta(podName(w.e)), Spec: corev1.PodSpec{
		SchedulingGates:               []corev1.PodSchedulingGate{{Name: gate}},
		ActiveDeadlineSeconds:         &deadline,
		TerminationGracePeriodSeconds: &end,
		AutomountServiceAccountToken:  &no,
		EnableServiceLinks:            &no,
		SecurityContext:               pod.Restricted(),
	}}
	group := int64(pod.User)
	p.Spec.SecurityContext.FSGroup = &group
	p.Labels, p.Annotations = labels(w.e), given(w.e.Annotations)
	maps.Copy(p.Labels, selector(w.e))
	for i, v := range config(w, s).Volumes {
		if v.Block {
			c.VolumeDevices = append(c.VolumeDevices, corev1.VolumeDevice{Name: volumeName(i), DevicePath: v.Path})
			p.Spec.SecurityContext.SupplementalGroups = []int64{diskGroup}
		} else {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volumeName(i), MountPath: v.Path, ReadOnly: true})
		}
		// The mount is read-only, and the PVC is not: the kubelet gives its files to the pod's group.
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: volumeName(i), VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: s.volumes[i].pvc.Name, ReadOnly: readsOnly(s.volumes[i].pvc)},
		}})
	}
	mount(p, &c, server.ServerFolder, secret)
	mount(p, &c, server.TokenFolder, *w.e.Status.TokenSecretRef, corev1.KeyToPath{Key: server.FileToken, Path: server.FileToken})
	if s.backup != nil {
		s.backup.place(p, &c)
	}
	p.Spec.Containers = []corev1.Container{c}
	if config(w, s).Push != nil {
		p.Spec.InitContainers = []corev1.Container{pusher(p, c, w.e.Annotations[AnnotationSecret])}
	}
	return p
}

// pusher returns the init container that pushes a disk. It has the server's PVCs and config, and
// alone the Secret of the registry.
func pusher(p *corev1.Pod, serves corev1.Container, secret string) corev1.Container {
	c := corev1.Container{
		Name: containerPush, Image: serves.Image, Args: []string{push.Flag, filesRoot}, ImagePullPolicy: serves.ImagePullPolicy,
		VolumeDevices: serves.VolumeDevices, Resources: *serves.Resources.DeepCopy(), SecurityContext: serves.SecurityContext.DeepCopy(),
		// Its result, for the export's status.
		TerminationMessagePath: push.ResultFile, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}
	for _, m := range serves.VolumeMounts {
		if m.Name != server.TokenFolder {
			c.VolumeMounts = append(c.VolumeMounts, m)
		}
	}
	if secret != "" {
		mount(p, &c, server.PushFolder, secret)
	}
	return c
}

// readsOnly reports whether no pod can write a PVC.
func readsOnly(pvc *corev1.PersistentVolumeClaim) bool {
	modes := pvc.Spec.AccessModes
	return len(modes) == 1 && modes[0] == corev1.ReadOnlyMany
}

// mount adds keys of a Secret below [filesRoot], or all.
func mount(p *corev1.Pod, c *corev1.Container, folder, secret string, keys ...corev1.KeyToPath) {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: folder, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: secret, Items: keys},
	}})
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: folder, MountPath: path.Join(filesRoot, folder), ReadOnly: true})
}

// resources returns those of KubeVirt's exporters, for which quotas may be made. The memory is for the
// compression of several downloads.
func resources() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("200Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")},
	}
}
