package admission

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/nodevirt/nodevirt/test/wait"
)

const small = `apiVersion: kubevirt.io/v1
kind: VirtualMachineInstancePreset
metadata: {name: small}
spec:
  selector: {matchLabels: {flavor: small}}
  domain:
    cpu: {cores: 2}
    memory: {guest: 256Mi}
`

const flavoured = `apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: flavoured, labels: {flavor: small}}
spec:
  domain: {cpu: {cores: 3}}
  volumes: [{name: root, containerDisk: {image: registry.example.com/guest}}]
`

// applied is a manifest that was applied, by a user who may do everything, and goes when the test ends.
func applied(t *testing.T, c client.Client, text string) *unstructured.Unstructured {
	t.Helper()
	o := new(unstructured.Unstructured)
	assert.NilError(t, yaml.Unmarshal([]byte(text), &o.Object))
	o.SetNamespace("default")
	assert.NilError(t, apply(t, c, o, "Strict"))
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(c.Delete(context.WithoutCancel(t.Context()), o)); err != nil {
			t.Error(err)
		}
	})
	return o
}

// TestPreset: a preset applies as soon as it exists; a field of the instance wins, which an event reports;
// and applying the same manifest again changes nothing, also when the preset is gone.
func TestPreset(t *testing.T) {
	c, err := newClient(suite.server.Config())
	assert.NilError(t, err)
	preset := applied(t, c, small)
	vmi := applied(t, c, flavoured)
	guest, _, _ := unstructured.NestedString(vmi.Object, "spec", "domain", "memory", "guest")
	cores, _, _ := unstructured.NestedInt64(vmi.Object, "spec", "domain", "cpu", "cores")
	if guest != "256Mi" || cores != 3 || vmi.GetAnnotations()["virtualmachinepreset.kubevirt.io/small"] != "kubevirt.io/v1" {
		t.Errorf("%s of memory, %d cores, annotations %v", guest, cores, vmi.GetAnnotations())
	}
	overridden(t, c, "spec.domain.cpu")

	assert.NilError(t, c.Delete(t.Context(), preset))
	again := applied(t, c, flavoured)
	if again.GetGeneration() != vmi.GetGeneration() || len(again.GetAnnotations()) != len(vmi.GetAnnotations()) {
		t.Errorf("applied again it is %v", again.Object)
	}
}

// overridden waits for the event that names what a VM overrides in a preset.
func overridden(t *testing.T, c client.Client, what string) {
	t.Helper()
	wait.Success(t, "the event of a preset", func(context.Context) error {
		list := new(unstructured.UnstructuredList)
		list.SetGroupVersionKind(eventsv1.SchemeGroupVersion.WithKind("EventList"))
		assert.NilError(t, c.List(t.Context(), list, client.InNamespace("default")))
		var all []string
		for _, e := range list.Items {
			note, _ := e.Object["note"].(string)
			if e.Object["reason"] == "Override" && strings.Contains(note, what) {
				return nil
			}
			all = append(all, note)
		}
		return fmt.Errorf("none is about %s:\n%s", what, strings.Join(all, "\n"))
	})
}
