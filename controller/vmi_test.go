package controller_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
)

func newVMI(name string) *kubevirt.VirtualMachineInstance {
	memory := resource.MustParse("128Mi")
	return &kubevirt.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace,
			// Admission adds it where it runs.
			Finalizers: []string{kubevirt.VirtualMachineInstanceFinalizer},
		},
		Spec: kubevirt.VirtualMachineInstanceSpec{
			Domain: kubevirt.DomainSpec{
				Memory:  &kubevirt.Memory{Guest: &memory},
				Devices: kubevirt.Devices{Disks: []kubevirt.Disk{{Name: "root"}}},
			},
			Volumes: []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{
				ContainerDisk: &kubevirt.ContainerDiskSource{Image: "registry.example.com/guest:1"},
			}}},
		},
	}
}

func (w *world) vmi(name string) *kubevirt.VirtualMachineInstance {
	w.Helper()
	vmi := newVMI(name)
	if err := w.Create(w.Context(), vmi); err != nil {
		w.Fatal(err)
	}
	return vmi
}

func (w *world) phase(name string, phase kubevirt.VirtualMachineInstancePhase) *kubevirt.VirtualMachineInstance {
	w.Helper()
	return until(w, new(kubevirt.VirtualMachineInstance), name, "phase "+string(phase),
		func(vmi *kubevirt.VirtualMachineInstance) bool { return vmi.Status.Phase == phase })
}

// run brings an instance's guest to run on a node.
func (w *world) run(vmi *kubevirt.VirtualMachineInstance, node string) *corev1.Pod {
	w.Helper()
	p := w.podOf(vmi)
	w.bind(p, node)
	w.running(p)
	w.phase(vmi.Name, kubevirt.Running)
	return p
}

func conditionOf(vmi *kubevirt.VirtualMachineInstance, kind string) kubevirt.VirtualMachineInstanceCondition {
	for _, c := range vmi.Status.Conditions {
		if string(c.Type) == kind {
			return c
		}
	}
	return kubevirt.VirtualMachineInstanceCondition{}
}

func TestInstance(t *testing.T) {
	w := newWorld(t)
	w.node("n1")
	w.settles()

	vmi := w.vmi("a")
	begun := time.Now()
	p := w.podOf(vmi)
	w.bind(p, "n1")
	early := until(w, new(kubevirt.VirtualMachineInstance), "a", "the instance",
		func(*kubevirt.VirtualMachineInstance) bool { return true }).Status.Phase
	w.phase("a", kubevirt.Scheduled)
	w.running(p)
	got := w.phase("a", kubevirt.Running)
	if s := got.Status; s.NodeName != "n1" || len(s.Interfaces) != 1 || s.Interfaces[0].IP != "10.1.2.3" ||
		s.ActivePods[p.UID] != "n1" || conditionOf(got, "Ready").Status != corev1.ConditionTrue {
		t.Errorf("status: %+v", s)
	}
	w.tellsOfMachine(got)
	all := about(w.requests.take(), "a")
	most := 3
	if early == kubevirt.Scheduling || time.Since(begun) > 4*time.Second { // the test, as scheduler, took its time
		most++
	}
	if writes := with(all, "/virtualmachineinstances/a"); len(all) > 4+most || len(writes) > most {
		t.Errorf("%d requests, %d writes of the VMI:\n%s", len(all), len(writes), strings.Join(all, "\n"))
	}

	if err := w.Delete(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	until(w, p, p.Name, "the pod's deletion", deleted)
	// The kubelet is away, and a user can't wait.
	w.forceDelete(p)
	w.stays(p)
	w.exited(p, 0)
	untilGone(w, p, p.Name)
	untilGone(w, vmi, "a")
}

// tellsOfMachine: the status of an instance that runs says what KubeVirt's would.
func (w *world) tellsOfMachine(vmi *kubevirt.VirtualMachineInstance) {
	w.Helper()
	s := vmi.Status
	if vmi.Labels[kubevirt.NodeNameLabel] != s.NodeName {
		w.Errorf("labels: %v", vmi.Labels)
	}
	if len(s.VolumeStatus) != 1 || s.VolumeStatus[0].Name != "root" || s.VolumeStatus[0].Target != "sda" {
		w.Errorf("volumes: %+v", s.VolumeStatus)
	}
	if s.Memory == nil || s.Memory.GuestCurrent.String() != "128Mi" || *s.CurrentCPUTopology != (kubevirt.CPUTopology{Cores: 1, Sockets: 1, Threads: 1}) {
		w.Errorf("memory %+v, CPU %+v", s.Memory, s.CurrentCPUTopology)
	}
	if card := s.Interfaces[0]; card.LinkState != "up" || card.QueueCount != 1 {
		w.Errorf("card: %+v", card)
	}
	var phases []kubevirt.VirtualMachineInstancePhase
	for _, t := range s.PhaseTransitionTimestamps {
		phases = append(phases, t.Phase)
	}
	want := []kubevirt.VirtualMachineInstancePhase{kubevirt.Pending, kubevirt.Scheduling, kubevirt.Scheduled, kubevirt.Running}
	if !slices.Equal(phases, want) {
		w.Errorf("phases %v, want %v", phases, want)
	}
}

// TestUnscheduled: an instance reports its pod also without a scheduler.
func TestUnscheduled(t *testing.T) {
	w := newWorld(t)
	w.podOf(w.vmi("unscheduled"))
	w.phase("unscheduled", kubevirt.Scheduling)
}

// stays makes sure that the controller has looked at a pod and left it where it is.
func (w *world) stays(p *corev1.Pod) {
	w.Helper()
	w.looks()
	w.change(p, false, func() {})
	if len(p.Finalizers) != 1 || p.Finalizers[0] != pod.Finalizer {
		w.Fatalf("pod %s has lost its finalizer", p.Name)
	}
}

// looks returns when the controller has dealt with all that was there before:
// twice it makes a pod of an instance that is new.
func (w *world) looks() {
	w.Helper()
	for range 2 {
		probe := newVMI("")
		probe.GenerateName = "probe-"
		if err := w.Create(w.Context(), probe); err != nil {
			w.Fatal(err)
		}
		w.podOf(probe)
	}
}

// settles returns when the controller has dealt with what earlier tests have left, whose requests would be
// taken for those of what comes next.
func (w *world) settles() {
	w.Helper()
	var last []string
	eventually(w, func() bool {
		w.requests.take()
		time.Sleep(time.Second / 2)
		last = with(w.requests.take(), "/namespaces/")
		return len(last) == 0
	}, func() string { return fmt.Sprintf("a controller without requests: %q", last) })
}

func deleted(p *corev1.Pod) bool { return p.DeletionTimestamp != nil }
