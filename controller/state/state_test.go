package state_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/state"
	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/test/fakecluster"
)

// TestLabelledIsBounded: anyone can label PVCs as a VM's state. Too many are an error, which names the label, and leave another
// VM's state alone.
func TestLabelledIsBounded(t *testing.T) {
	c := fakecluster.New(t, fakecluster.Options{Types: []func(*runtime.Scheme) error{corev1.AddToScheme}})
	add := func(name, vm string) {
		c.Add(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "default", Labels: map[string]string{pod.StateLabel: pod.LabelOf(vm)},
		}})
	}
	add("neighbour", "neighbour")
	for i := range bounds.StatePVCs {
		add(fmt.Sprint("state-", i), "web")
	}
	if all, err := state.Labelled(t.Context(), c.Client, "default", "web"); err != nil || len(all) != bounds.StatePVCs {
		t.Errorf("as many as allowed: %d, %v", len(all), err)
	}
	add("one-more", "web")
	if _, err := state.Labelled(t.Context(), c.Client, "default", "web"); err == nil || !strings.Contains(err.Error(), "remove the label from the others") {
		t.Errorf("one more: %v", err)
	}
	if all, err := state.Labelled(t.Context(), c.Client, "default", "neighbour"); err != nil || len(all) != 1 {
		t.Errorf("another VM's: %d, %v", len(all), err)
	}
}
