package controller_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type replicaSet = kubevirt.VirtualMachineInstanceReplicaSet

// replicaSet makes one whose instances have the label set=NAME.
func (w *world) replicaSet(name string, replicas int32) *replicaSet {
	w.Helper()
	set := newReplicaSet(name, replicas)
	if err := w.Create(w.Context(), set); err != nil {
		w.Fatal(err)
	}
	return set
}

func newReplicaSet(name string, replicas int32) *replicaSet {
	labels := map[string]string{"set": name}
	return &replicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: kubevirt.VirtualMachineInstanceReplicaSetSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: &kubevirt.VirtualMachineInstanceTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: newVMI(name).Spec,
			},
		},
	}
}

// scale does what kubectl scale and autoscalers do.
func (w *world) scale(set *replicaSet, replicas int32) {
	w.Helper()
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	if err := w.SubResource("scale").Update(w.Context(), set, client.WithSubResourceBody(scale)); err != nil {
		w.Fatalf("scale %s: %v", set.Name, err)
	}
}

// replicas are the instances with a set's label that are not being deleted.
func (w *world) replicas(set *replicaSet) []kubevirt.VirtualMachineInstance {
	w.Helper()
	var list kubevirt.VirtualMachineInstanceList
	if err := w.List(w.Context(), &list, inNamespace, client.MatchingLabels{"set": set.Name}); err != nil {
		w.Fatal(err)
	}
	var all []kubevirt.VirtualMachineInstance
	for _, vmi := range list.Items {
		if vmi.DeletionTimestamp == nil {
			all = append(all, vmi)
		}
	}
	return all
}

// has waits until a set has as many replicas, so many of them ready, by its own
// word and really.
func (w *world) has(set *replicaSet, replicas, ready int32) []kubevirt.VirtualMachineInstance {
	w.Helper()
	until(w, set, set.Name, fmt.Sprintf("%d replicas, %d ready", replicas, ready), func(s *replicaSet) bool {
		return s.Status.Replicas == replicas && s.Status.ReadyReplicas == ready
	})
	var all []kubevirt.VirtualMachineInstance
	eventually(w, func() bool {
		all = w.replicas(set)
		return len(all) == int(replicas)
	}, func() string { return fmt.Sprintf("%d replicas of %s; there are %d", replicas, set.Name, len(all)) })
	return all
}

// not returns the one of some instances that has another name.
func not(name string, all []kubevirt.VirtualMachineInstance) *kubevirt.VirtualMachineInstance {
	for i := range all {
		if all[i].Name != name {
			return &all[i]
		}
	}
	return nil
}

func TestReplicaSet(t *testing.T) {
	w := newWorld(t)
	w.node("set")
	set := w.replicaSet("set", 0)
	w.has(set, 0, 0)
	w.scale(set, 3)
	all := w.has(set, 3, 0)
	for _, vmi := range all {
		if !metav1.IsControlledBy(&vmi, set) || !strings.HasPrefix(vmi.Name, "set-") || vmi.Labels["set"] != "set" {
			t.Errorf("%+v", vmi.ObjectMeta)
		}
	}
	w.event("set", "SuccessfulCreate", "by creating the new virtual machine instance set-")
	scale := new(autoscalingv1.Scale)
	if err := w.SubResource("scale").Get(t.Context(), set, scale); err != nil {
		t.Fatal(err)
	}
	if s := scale.Status; s.Replicas != 3 || s.Selector != "set=set" {
		t.Errorf("an autoscaler reads %+v", s)
	}
	p := w.run(&all[1], "set")
	w.has(set, 3, 1)

	// The one that runs is missed most.
	w.scale(set, 1)
	if left := w.has(set, 1, 1); left[0].Name != all[1].Name {
		t.Errorf("%s is left, not %s", left[0].Name, all[1].Name)
	}
	w.event("set", "SuccessfulDelete", "Stopped the virtual machine by deleting")

	// A pod that is evicted: its instance is replaced before it has ended.
	if err := w.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	eventually(w, func() bool { return not(all[1].Name, w.replicas(set)) != nil }, func() string { return "a replacement" })
	w.exited(p, 0)
	untilGone(w, new(kubevirt.VirtualMachineInstance), all[1].Name)
	w.has(set, 1, 0)
	w.scale(set, 0)
	w.has(set, 0, 0)
	w.looks()
	if n := len(w.replicas(set)); n > 0 {
		t.Errorf("%d replicas", n)
	}
}

// TestReplicaSetAdopts: a set adopts and releases instances by their labels, and
// adopts none of another owner.
func TestReplicaSetAdopts(t *testing.T) {
	w := newWorld(t)
	w.node("adopting")
	labelled := func(name string, owners ...metav1.OwnerReference) *kubevirt.VirtualMachineInstance {
		vmi := newVMI(name)
		vmi.Labels, vmi.OwnerReferences = map[string]string{"set": "adopting"}, owners
		if err := w.Create(t.Context(), vmi); err != nil {
			t.Fatal(err)
		}
		return vmi
	}
	stranger := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "stranger", Namespace: namespace}}
	if err := w.Create(t.Context(), stranger); err != nil {
		t.Fatal(err)
	}
	ended := labelled("adopt-ended")
	w.exited(w.run(ended, "adopting"), 0)
	w.phase(ended.Name, kubevirt.Succeeded)
	orphan := labelled("adopt-orphan")
	strangers := labelled("adopt-strangers", *metav1.NewControllerRef(stranger, corev1.SchemeGroupVersion.WithKind("ConfigMap")))

	set := w.replicaSet("adopting", 2)
	until(w, set, set.Name, "two replicas", func(s *replicaSet) bool { return s.Status.Replicas == 2 })
	w.change(orphan, false, func() {})
	if !metav1.IsControlledBy(orphan, set) {
		t.Errorf("owners of the orphan: %v", orphan.OwnerReferences)
	}
	for _, vmi := range []*kubevirt.VirtualMachineInstance{ended, strangers} {
		w.change(vmi, false, func() {})
		if metav1.IsControlledBy(vmi, set) || vmi.DeletionTimestamp != nil {
			t.Errorf("%s: %+v", vmi.Name, vmi.ObjectMeta)
		}
	}

	w.change(orphan, false, func() { orphan.Labels = map[string]string{"set": "none"} })
	until(w, orphan, orphan.Name, "its release",
		func(vmi *kubevirt.VirtualMachineInstance) bool { return len(vmi.OwnerReferences) == 0 })
	two := func() bool {
		n := 0
		for _, vmi := range w.replicas(set) {
			if metav1.IsControlledBy(&vmi, set) {
				n++
			}
		}
		return n == 2
	}
	eventually(w, two, func() string { return "a replica in its place" })
	// And back: there is one too many then.
	w.change(orphan, false, func() { orphan.Labels = map[string]string{"set": "adopting"} })
	w.event("adopting", "SuccessfulDelete", "Stopped the virtual machine")
	eventually(w, two, func() string { return "two replicas" })
}

func TestReplicaSetPaused(t *testing.T) {
	w := newWorld(t)
	set := w.replicaSet("pausing", 1)
	first := w.has(set, 1, 0)[0]
	w.change(set, false, func() { set.Spec.Paused = true })
	condition := func(want corev1.ConditionStatus) {
		t.Helper()
		until(w, set, set.Name, "condition ReplicaPaused "+string(want), func(s *replicaSet) bool {
			return setCondition(s, kubevirt.VirtualMachineInstanceReplicaSetReplicaPaused).Status == want
		})
	}
	condition(corev1.ConditionTrue)
	w.event("pausing", "SuccessfulPaused", "Paused")
	w.delete(&first)
	w.scale(set, 2)
	until(w, set, set.Name, "no replicas", func(s *replicaSet) bool { return s.Status.Replicas == 0 })
	w.looks()
	if n := len(w.replicas(set)); n > 0 {
		t.Errorf("%d replicas of a set that is paused", n)
	}
	w.change(set, false, func() { set.Spec.Paused = false })
	w.has(set, 2, 0)
	condition("")
	w.event("pausing", "SuccessfulResumed", "Resumed")
}

func setCondition(
	set *replicaSet, kind kubevirt.VirtualMachineInstanceReplicaSetConditionType,
) kubevirt.VirtualMachineInstanceReplicaSetCondition {
	for _, c := range set.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return kubevirt.VirtualMachineInstanceReplicaSetCondition{}
}

// TestReplicaSetBackOff: a guest that ends at once is looked at for a while before
// it is replaced, and keeps nothing else from starting.
func TestReplicaSetBackOff(t *testing.T) {
	w := newWorld(t)
	w.node("failing")
	set := w.replicaSet("failing", 1)
	first := w.has(set, 1, 0)[0]
	w.exited(w.run(&first, "failing"), 1)
	until(w, set, set.Name, "the failure", func(s *replicaSet) bool {
		c := setCondition(s, kubevirt.VirtualMachineInstanceReplicaSetReplicaFailure)
		return c.Reason == "BackOff" && strings.Contains(c.Message, first.Name) && s.Status.Replicas == 0
	})
	w.event("failing", "BackOff", "failure 1 in a row, replaced after 10s")
	failed := time.Now()
	w.scale(set, 2) // the failed one keeps its place, for ten seconds
	until(w, set, set.Name, "one replica", func(s *replicaSet) bool { return s.Status.Replicas > 0 })
	w.change(&first, false, func() {})
	if first.DeletionTimestamp != nil && time.Since(failed) < 5*time.Second {
		t.Error("the failed one was removed at once")
	}
	all := w.has(set, 2, 0)
	if not(first.Name, all) == nil {
		t.Errorf("replicas: %v", all)
	}
	w.event("failing", "SuccessfulDelete", "Deleted finished virtual machine instance "+first.Name)
	until(w, set, set.Name, "no failure", func(s *replicaSet) bool {
		return setCondition(s, kubevirt.VirtualMachineInstanceReplicaSetReplicaFailure).Status == ""
	})
}

// TestReplicaSetQuota: what the API server refuses is reported, not tried for
// each replica, and made up for.
func TestReplicaSetQuota(t *testing.T) {
	w := newWorld(t)
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tight"}}
	if err := w.Create(t.Context(), space); err != nil {
		t.Fatal(err)
	}
	const counted = "count/virtualmachineinstances.kubevirt.io"
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none", Namespace: space.Name}}
	quota.Spec.Hard = corev1.ResourceList{counted: resource.MustParse("0")}
	if err := w.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	w.change(quota, true, func() {
		quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, corev1.ResourceList{counted: resource.MustParse("0")}
	})
	set := newReplicaSet("tight", 40)
	set.Namespace = space.Name
	if err := w.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	var c kubevirt.VirtualMachineInstanceReplicaSetCondition
	look := func() error {
		err := w.Get(t.Context(), client.ObjectKeyFromObject(set), set)
		c = setCondition(set, kubevirt.VirtualMachineInstanceReplicaSetReplicaFailure)
		return err
	}
	eventually(w, func() bool {
		return look() == nil && c.Reason == "FailedCreate" && strings.Contains(c.Message, "exceeded quota")
	},
		func() string { return fmt.Sprintf("the failure: %+v", c) })
	w.delete(quota)
	eventually(w, func() bool { return look() == nil && c.Status == "" && set.Status.Replicas == 40 },
		func() string { return fmt.Sprintf("40 replicas: %+v", set.Status) })
}

// TestReplicaSetNeverTooMany: controllers come and go, and even two of them that
// work at a time make no replica too many.
func TestReplicaSetNeverTooMany(t *testing.T) {
	w, second := newWorld(t), newWorld(t)
	const most = 25
	set := w.replicaSet("many", 0)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			var list kubevirt.VirtualMachineInstanceList
			if err := w.List(ctx, &list, inNamespace, client.MatchingLabels{"set": set.Name}); err == nil && len(list.Items) > most {
				t.Errorf("%d replicas: %s", len(list.Items), describe(list.Items))
				return
			}
			time.Sleep(2 * time.Millisecond)
		}
	})
	defer group.Wait()
	defer cancel()
	w.scale(set, 10)
	for range 3 {
		second.stop()
		second.start()
	}
	w.has(set, 10, 0)
	w.scale(set, most)
	w.stop()
	w.start()
	w.has(set, most, 0)
	w.looks()
	if n := len(w.replicas(set)); n != most {
		t.Errorf("%d replicas, not %d", n, most)
	}
}

// describe says of each instance what can make it one too many.
func describe(all []kubevirt.VirtualMachineInstance) string {
	var text strings.Builder
	for i := range all {
		vmi := &all[i]
		fmt.Fprintf(&text, "\n%s %s created %s deleted %v: %+v", vmi.Name, vmi.Status.Phase, vmi.CreationTimestamp, vmi.DeletionTimestamp, vmi.Status.Conditions)
	}
	return text.String()
}
