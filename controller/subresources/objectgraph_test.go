package subresources_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
)

// What a VM needs is found by its manifest, its status and its own pod, and is filtered as the call wants it.
func testObjectGraphs(t *testing.T, w *world, front tls.Certificate) {
	vm := w.vm(t, "graph", kubevirt.RunStrategyAlways)
	vm.Spec.Instancetype = &kubevirt.InstancetypeMatcher{Kind: "virtualmachineclusterinstancetype", Name: "small"}
	vm.Spec.Preference = &kubevirt.PreferenceMatcher{Kind: "virtualmachinepreferences", Name: "linux", RevisionName: "linux-1"}
	secret := func(name string) *corev1.LocalObjectReference { return &corev1.LocalObjectReference{Name: name} }
	spec := &vm.Spec.Template.Spec
	spec.Domain.Devices.TPM = &kubevirt.TPMDevice{Persistent: new(true)}
	spec.AccessCredentials = []kubevirt.AccessCredential{{UserPassword: &kubevirt.UserPasswordAccessCredential{
		Source: kubevirt.UserPasswordAccessCredentialSource{Secret: &kubevirt.AccessCredentialSecretSource{SecretName: "login"}},
	}}}
	spec.Networks = []kubevirt.Network{
		{Name: "own", NetworkSource: kubevirt.NetworkSource{Multus: &kubevirt.MultusNetwork{NetworkName: "lan"}}},
		{Name: "other", NetworkSource: kubevirt.NetworkSource{Multus: &kubevirt.MultusNetwork{NetworkName: "shared/wan"}}},
	}
	spec.Volumes = []kubevirt.Volume{
		{Name: "boot", VolumeSource: kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{Image: "i", ImagePullSecret: "registry"}}},
		{Name: "data", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "filled"}}},
		{Name: "more", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"},
		}}},
		{Name: "seed", VolumeSource: kubevirt.VolumeSource{CloudInitNoCloud: &kubevirt.CloudInitNoCloudSource{
			UserDataSecretRef: secret("user"), NetworkDataSecretRef: secret("network"),
		}}},
		{Name: "settings", VolumeSource: kubevirt.VolumeSource{ConfigMap: &kubevirt.ConfigMapVolumeSource{LocalObjectReference: *secret("settings")}}},
		{Name: "again", VolumeSource: kubevirt.VolumeSource{Secret: &kubevirt.SecretVolumeSource{SecretName: "user"}}},
		{Name: "account", VolumeSource: kubevirt.VolumeSource{ServiceAccount: &kubevirt.ServiceAccountVolumeSource{ServiceAccountName: "robot"}}},
	}
	assert.NilError(t, w.Update(t.Context(), vm))
	vm.Status.InstancetypeRef = &kubevirt.InstancetypeStatusRef{ControllerRevisionRef: &kubevirt.ControllerRevisionRef{Name: "small-1"}}
	assert.NilError(t, w.Status().Update(t.Context(), vm))
	vmi := w.vmi(t, vm.Name, vm, kubevirt.Running)
	vmi.Spec = vm.Spec.Template.Spec
	assert.NilError(t, w.Update(t.Context(), vmi))
	state := pod.NewState(vmi, pod.StateOptions{})
	assert.NilError(t, w.Create(t.Context(), state))
	assert.NilError(t, w.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vmi.Namespace, Name: pod.Current(vmi),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vmi, kubevirt.VirtualMachineInstanceGroupVersionKind)},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "guest", Image: "i"}}},
	}))

	launcher := "Pod default/" + pod.Current(vmi) + " compute"
	own := []string{
		"Secret default/login config", "Secret default/registry config",
		"DataVolume default/filled storage(PersistentVolumeClaim default/filled storage)", "PersistentVolumeClaim default/disk storage",
		"Secret default/user config", "Secret default/network config", "ConfigMap default/settings config",
		"ServiceAccount default/robot config", "PersistentVolumeClaim default/" + state.Name + " storage",
	}
	networks := []string{"NetworkAttachmentDefinition default/lan network?", "NetworkAttachmentDefinition shared/wan network?"}
	types := []string{
		"VirtualMachineClusterInstancetype /small config?", "ControllerRevision default/small-1 config",
		"VirtualMachinePreference default/linux config?", "ControllerRevision default/linux-1 config",
	}
	instance := "VirtualMachineInstance default/graph compute(" + launcher + ")"
	for _, c := range []struct {
		of, body string
		want     []string
	}{
		{"virtualmachineinstances", "", slices.Concat([]string{launcher}, own, networks)},
		{"virtualmachines", "{}", slices.Concat([]string{instance}, types, own, networks)},
		{"virtualmachines", `{"includeOptionalNodes": false}`, slices.Concat([]string{instance}, []string{types[1], types[3]}, own)},
		{"virtualmachines", `{"labelSelector": {"matchLabels": {"kubevirt.io/dependency-type": "storage"}}}`, []string{own[2], own[3], own[8]}},
	} {
		code, text := w.call(&front, "admin", "GET", c.of+"/graph/objectgraph", c.body)
		var root kubevirt.ObjectGraphNode
		if err := json.Unmarshal(text, &root); err != nil || code != 200 {
			t.Fatalf("%s %s: %d, %v: %s", c.of, c.body, code, err, text)
		}
		var got []string
		for _, n := range root.Children {
			got = append(got, textOf(n))
		}
		assert.DeepEqual(t, got, c.want)
	}
	for body, want := range map[string]string{
		`{"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}`: "labelSelector",
		`{`: "can not unmarshal",
	} {
		if code, message := w.ask(&front, "admin", "GET", "virtualmachines/graph/objectgraph", body); code != 400 || !strings.Contains(message, want) {
			t.Errorf("%s: %d, %q", body, code, message)
		}
	}
	if code, message := w.ask(&front, "admin", "GET", "virtualmachines/no-graph/objectgraph", ""); code != 404 {
		t.Errorf("without a VM: %d, %q", code, message)
	}
}

// textOf names an object of a graph, its part, and with a "?" that it is optional.
func textOf(n kubevirt.ObjectGraphNode) string {
	text := fmt.Sprintf("%s %s/%s %s", n.ObjectReference.Kind, *n.ObjectReference.Namespace, n.ObjectReference.Name, n.Labels["kubevirt.io/dependency-type"])
	if n.Optional != nil && *n.Optional {
		text += "?"
	}
	for _, child := range n.Children {
		text += "(" + textOf(child) + ")"
	}
	return text
}
