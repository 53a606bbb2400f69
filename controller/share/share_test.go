package share

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
)

// decoded returns a VM and its instance as decoders do: without anything in common.
func decoded(t *testing.T, i int, userData string) (*kubevirt.VirtualMachine, *kubevirt.VirtualMachineInstance) {
	t.Helper()
	memory := resource.MustParse("1Gi")
	spec := kubevirt.VirtualMachineInstanceSpec{
		Domain: kubevirt.DomainSpec{
			CPU: &kubevirt.CPU{Cores: 2}, Memory: &kubevirt.Memory{Guest: &memory},
			Firmware: &kubevirt.Firmware{UUID: types.UID(fmt.Sprintf("5d307ca9-b3ef-428c-8861-%012d", i))},
			Devices: kubevirt.Devices{
				Disks: []kubevirt.Disk{{Name: "root", DiskDevice: kubevirt.DiskDevice{Disk: &kubevirt.DiskTarget{Bus: "virtio"}}}},
			},
		},
		Volumes: []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{
			CloudInitNoCloud: &kubevirt.CloudInitNoCloudSource{UserData: userData}}}},
	}
	meta := metav1.ObjectMeta{Name: fmt.Sprint("vm-", i), Labels: map[string]string{"app": "web"}, CreationTimestamp: metav1.Unix(1, 0)}
	vm := &kubevirt.VirtualMachine{ObjectMeta: meta, Spec: kubevirt.VirtualMachineSpec{
		Template: &kubevirt.VirtualMachineInstanceTemplateSpec{Spec: spec}}}
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: meta, Spec: spec}
	return again(t, vm), again(t, vmi)
}

func again[T any](t *testing.T, o *T) *T {
	t.Helper()
	text, err := json.Marshal(o)
	assert.NilError(t, err)
	n := new(T)
	assert.NilError(t, json.Unmarshal(text, n))
	return n
}

// TestShare: objects keep their contents, and have the memory of equal parts and strings in common.
func TestShare(t *testing.T) {
	pool := NewPool()
	one, vmi := decoded(t, 1, "#cloud-config")
	two, _ := decoded(t, 2, "#cloud-config")
	for _, o := range []any{one, vmi, two} {
		text, err := json.Marshal(o)
		assert.NilError(t, err)
		pool.Share(o)
		after, err := json.Marshal(o)
		assert.NilError(t, err)
		assert.Equal(t, string(after), string(text))
	}
	a, b, c := &one.Spec.Template.Spec, &vmi.Spec, &two.Spec.Template.Spec
	for _, other := range []*kubevirt.VirtualMachineInstanceSpec{b, c} {
		if &a.Domain.Devices.Disks[0] != &other.Domain.Devices.Disks[0] || &a.Volumes[0] != &other.Volumes[0] ||
			a.Domain.CPU != other.Domain.CPU || a.Domain.Memory != other.Domain.Memory {
			t.Error("equal parts are not shared")
		}
	}
	if unsafe.StringData(one.Name) != unsafe.StringData(vmi.Name) {
		t.Error("equal names are not shared")
	}
	if a.Domain.Firmware == c.Domain.Firmware || c.Domain.Firmware.UUID == a.Domain.Firmware.UUID {
		t.Error("different parts are shared")
	}
	if one.Name == two.Name {
		t.Error("different names are shared")
	}
}

// TestShareLittleDifference: a part that differs in anything is not shared.
func TestShareLittleDifference(t *testing.T) {
	pool := NewPool()
	one, _ := decoded(t, 1, "#cloud-config")
	two, _ := decoded(t, 2, "#cloud-config ")
	pool.Share(one)
	pool.Share(two)
	if got := two.Spec.Template.Spec.Volumes[0].CloudInitNoCloud.UserData; got != "#cloud-config " {
		t.Errorf("user data %q", got)
	}
}

// TestShareBounds: the pool does not remember long parts and strings, or more than it should, whatever users write.
func TestShareBounds(t *testing.T) {
	pool := NewPool()
	spec := func(userData string) *kubevirt.VirtualMachineInstanceSpec {
		return &kubevirt.VirtualMachineInstanceSpec{Volumes: []kubevirt.Volume{{Name: "seed", VolumeSource: kubevirt.VolumeSource{
			CloudInitNoCloud: &kubevirt.CloudInitNoCloudSource{UserData: userData}}}}}
	}
	shared := func(s *kubevirt.VirtualMachineInstanceSpec) bool {
		before := &s.Volumes[0]
		pool.Share(s)
		return before != &s.Volumes[0]
	}
	const n = 4 * recentParts
	for i := range n {
		shared(spec(fmt.Sprint(i)))
	}
	if shared(spec("0")) || !shared(spec(fmt.Sprint(n-1))) {
		t.Error("the pool remembers an old part, or forgets a new one")
	}
	long := strings.Repeat("x", maxPart)
	shared(spec(long))
	if shared(spec(long)) {
		t.Error("a long part is remembered")
	}
	pool.Share(&metav1.ObjectMeta{Labels: map[string]string{long: long}, Name: long})
	if _, ok := pool.strings.Find(long); ok {
		t.Error("a long string is remembered")
	}
}

// TestShareAtOnce: caches share at once.
func TestShareAtOnce(t *testing.T) {
	pool := NewPool()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 100 {
				vm, vmi := decoded(t, i, "#cloud-config")
				p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "compute"}}}}
				pool.Share(vm)
				pool.Share(vmi)
				pool.Share(p)
				_ = p.DeepCopy()
				_ = vm.DeepCopy()
			}
		})
	}
	all.Wait()
}
