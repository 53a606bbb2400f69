package pool

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	kubevirt "kubevirt.io/api/core/v1"
	api "kubevirt.io/api/pool/v1beta1"
)

func TestOrder(t *testing.T) {
	now := time.Now()
	made := func(index, age int, uid types.UID) *member {
		return &member{index: index, vm: &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{
			UID: uid, CreationTimestamp: metav1.NewTime(now.Add(-time.Duration(age) * time.Second)),
		}}}
	}
	for policy, want := range map[api.VirtualMachinePoolSortPolicy]string{
		api.VirtualMachinePoolSortPolicyAscendingOrder:  "0 1 2 10",
		api.VirtualMachinePoolSortPolicyDescendingOrder: "10 2 1 0",
		api.VirtualMachinePoolSortPolicyOldest:          "2 0 1 10",
		api.VirtualMachinePoolSortPolicyNewest:          "10 1 0 2",
		api.VirtualMachinePoolSortPolicyRandom:          "1 10 2 0",
		"":                                              "1 10 2 0",
	} {
		all := []*member{made(0, 5, "d"), made(10, 1, "b"), made(1, 5, "a"), made(2, 9, "c")}
		of := &api.VirtualMachinePoolSelectionPolicy{SortPolicy: &policy}
		if policy == "" {
			of = nil
		}
		order(all, of)
		got := ""
		for _, m := range all {
			got += " " + nameOf(new(vmPool), m.index)[1:]
		}
		if got != " "+want {
			t.Errorf("%s: %s, want %s", policy, got, want)
		}
	}
}

func TestIndexOf(t *testing.T) {
	pool := &vmPool{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}}
	for name, want := range map[string]int{
		"web-1-0": 0, "web-1-12": 12, "web-1": -1, "web-1-": -1, "web-1-01": -1, "web-1--1": -1, "web-1-+1": -1, "web-2-0": -1, "0": -1,
	} {
		if got := indexOf(pool, name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}

func TestMayBeUnavailable(t *testing.T) {
	for _, c := range []struct {
		replicas int32
		max      *intstr.IntOrString
		want     int
	}{
		{4, nil, 4},
		{4, new(intstr.FromInt32(1)), 1},
		{10, new(intstr.FromString("25%")), 2},
		{3, new(intstr.FromString("10%")), 1},
		{3, new(intstr.FromString("some")), 1},
	} {
		pool := &vmPool{Spec: api.VirtualMachinePoolSpec{Replicas: &c.replicas, MaxUnavailable: c.max}}
		if got := mayBeUnavailable(pool); got != c.want {
			t.Errorf("%v of %d: %d, want %d", c.max, c.replicas, got, c.want)
		}
	}
}

func TestNodeSelector(t *testing.T) {
	node := labels.Set{"zone": "b", "cpus": "8"}
	for want, all := range map[bool][]corev1.NodeSelectorRequirement{
		true: {
			{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a", "b"}},
			{Key: "zone", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"c"}},
			{Key: "zone", Operator: corev1.NodeSelectorOpExists},
			{Key: "gpu", Operator: corev1.NodeSelectorOpDoesNotExist},
			{Key: "cpus", Operator: corev1.NodeSelectorOpGt, Values: []string{"4"}},
		},
		false: {{Key: "cpus", Operator: corev1.NodeSelectorOpLt, Values: []string{"8"}}},
	} {
		selector, err := nodeSelector(all)
		if err != nil || selector.Matches(node) != want {
			t.Errorf("%v: %v, %v", all, selector, err)
		}
	}
	if _, err := nodeSelector([]corev1.NodeSelectorRequirement{{Key: "a", Operator: "Among"}}); err == nil {
		t.Error("no error")
	}
}
