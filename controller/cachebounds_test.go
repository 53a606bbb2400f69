package controller

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	exportapi "kubevirt.io/api/export/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/vmi"
	hotplug "github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// maxKept is what the cache may hold of one object that a stranger has made as large as possible, in bytes of JSON.
const maxKept = 96 << 10

// TestStrangersInCache: the cache holds a bounded part of pods, PVCs and quotas, whatever their authors write.
func TestStrangersInCache(t *testing.T) {
	text := newCached(t)
	for name, o := range map[string]client.Object{
		"a pod like a VM's":            largePod(pod.LabelValue),
		"a pod like an attachment":     largePod(pod.AttachmentLabelValue),
		"a pod like that of an export": largePod(exportapi.App),
		"a PVC":                        largePVC(),
		"a quota":                      largeQuota(),
	} {
		given, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		kept, err := json.Marshal(text(given))
		if err != nil {
			t.Fatal(err)
		}
		if len(kept) > maxKept || len(kept) > len(given)/2 {
			t.Errorf("the cache holds %d of %d bytes of %s, and may hold %d", len(kept), len(given), name, maxKept)
		}
	}
}

// TestCacheKeepsDisks: a pod with as many disks as a VM can have stays whole.
func TestCacheKeepsDisks(t *testing.T) {
	p := new(corev1.Pod)
	p.Spec.Volumes = claims(vmspec.MaxDisks)
	trimPod(p)
	if len(p.Spec.Volumes) != vmspec.MaxDisks {
		t.Errorf("the cache has %d of %d disks", len(p.Spec.Volumes), vmspec.MaxDisks)
	}
}

func claims(n int) []corev1.Volume {
	var all []corev1.Volume
	for i := range n {
		all = append(all, corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprint(strings.Repeat("x", 240), i)},
		}})
	}
	return all
}

// largePod returns a pod that the controller takes for a VM's, an attachment's or an export's.
func largePod(label string) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "a", Namespace: "greedy", Labels: map[string]string{kubevirt.AppLabel: label},
			Annotations: map[string]string{
				kubevirt.DomainAnnotation: "vm", hotplug.Annotation: "uid", "example.com/notes": strings.Repeat("x", 100<<10),
				vmi.AnnotationNetworkStatus: strings.Repeat("x", 100<<10), pod.AnnotationProblem: strings.Repeat("x", 50<<10),
			},
		},
	}
	p.Spec.Volumes = claims(12000)
	for i := range 2000 {
		name := fmt.Sprint("c", i)
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Image: strings.Repeat("x", 200)})
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
		p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: name})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, Image: strings.Repeat("x", 200)})
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, corev1.ContainerStatus{Name: name})
		p.Status.EphemeralContainerStatuses = append(p.Status.EphemeralContainerStatuses, corev1.ContainerStatus{Name: name})
		p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: name})
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodConditionType(name)})
	}
	return p
}

func largePVC() *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "greedy", Labels: map[string]string{}, Annotations: map[string]string{}},
	}
	for _, key := range append(pod.AnnotationsOfCDI(), pod.AnnotationOrigin) {
		c.Annotations[key] = strings.Repeat("x", 20<<10)
	}
	c.Spec.Resources.Requests = corev1.ResourceList{}
	for i := range 10000 {
		c.Labels[fmt.Sprint("example.com/label-", i)] = "x"
		c.Spec.AccessModes = append(c.Spec.AccessModes, corev1.ReadWriteOnce)
		c.Spec.Resources.Requests[corev1.ResourceName(fmt.Sprint("example.com/r", i))] = resource.MustParse("1")
	}
	return c
}

func largeQuota() *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ResourceQuota"},
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "greedy", Annotations: map[string]string{"a": strings.Repeat("x", 200<<10)}},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{}},
	}
	for i := range 10000 {
		q.Spec.Hard[corev1.ResourceName(fmt.Sprintf("count/kind-%d.example.com", i))] = resource.MustParse("1")
	}
	return q
}
