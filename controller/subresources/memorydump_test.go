package subresources_test

import (
	"crypto/tls"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Memory dumps are requested and refused as KubeVirt's users are used to it.
func testMemoryDumps(t *testing.T, w *world, front tls.Certificate) {
	claim := func(name, size string, mode corev1.PersistentVolumeMode, access corev1.PersistentVolumeAccessMode) {
		t.Helper()
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		c.Spec.VolumeMode, c.Spec.AccessModes = &mode, []corev1.PersistentVolumeAccessMode{access}
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
		assert.NilError(t, w.Create(t.Context(), c))
	}
	files, block := corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock
	claim("dump", "174Mi", files, corev1.ReadWriteOnce)
	claim("dump-other", "1Gi", files, corev1.ReadWriteMany)
	claim("dump-small", "173Mi", files, corev1.ReadWriteOnce)
	claim("dump-block", "1Gi", block, corev1.ReadWriteOnce)
	claim("dump-fixed", "1Gi", files, corev1.ReadOnlyMany)
	halted, running := w.vm(t, "dump-halted", kubevirt.RunStrategyHalted), w.vm(t, "dump-running", kubevirt.RunStrategyAlways)
	vmi := w.vmi(t, running.Name, running, kubevirt.Running)
	vmi.Spec.Domain.Memory = &kubevirt.Memory{Guest: new(resource.MustParse("64Mi"))} // and so (64 + 100) * 1.055
	assert.NilError(t, w.Update(t.Context(), vmi))
	set := func(phase kubevirt.MemoryDumpPhase) {
		t.Helper()
		assert.NilError(t, w.Get(t.Context(), client.ObjectKeyFromObject(running), running))
		running.Status.MemoryDumpRequest.Phase = phase
		running.Status.MemoryDumpRequest.Remove = false
		running.Status.MemoryDumpRequest.FileName = new("former")
		assert.NilError(t, w.Status().Update(t.Context(), running))
	}
	for _, c := range []struct {
		name, verb, body string
		before           kubevirt.MemoryDumpPhase // that the reconciler has written
		code             int
		want             string // the refusal, or the phase then
	}{
		{"none", "memorydump", `{"claimName": "dump"}`, "", 404, "not found"},
		{halted.Name, "memorydump", `{"claimName": "dump"}`, "", 404, "not found"},
		{halted.Name, "removememorydump", ``, "", 409, "can't remove memory dump association for vm dump-halted, no association found"},
		{running.Name, "memorydump", `{}`, "", 400, "Memory dump requires claimName to be set"},
		{running.Name, "memorydump", `{"claimName": "none"}`, "", 404, `"none" not found`},
		{running.Name, "memorydump", `{"claimName": "dump-block"}`, "", 409, "pvc should be filesystem pvc"},
		{running.Name, "memorydump", `{"claimName": "dump-fixed"}`, "", 409, "pvc access mode can't be read only"},
		{running.Name, "memorydump", `{"claimName": "dump-small"}`, "", 409, "pvc size [173Mi] should be bigger then [174Mi]"},
		{running.Name, "memorydump", `{"claimName": "dump"}`, "", 202, "Associating"},
		{running.Name, "memorydump", `{"claimName": "dump"}`, "", 409, "memory dump request for pvc [dump] already in progress"},
		{running.Name, "memorydump", `{"claimName": "dump-other"}`, "", 409,
			"can't request memory dump for pvc [dump-other] while pvc [dump] is still associated as the memory dump pvc"},
		{running.Name, "memorydump", `{}`, kubevirt.MemoryDumpUnmounting, 409, "already in progress"},
		{running.Name, "memorydump", `{}`, kubevirt.MemoryDumpCompleted, 202, "Associating"},
		{running.Name, "memorydump", `{"claimName": "dump"}`, kubevirt.MemoryDumpFailed, 202, "Associating"},
		{running.Name, "removememorydump", ``, kubevirt.MemoryDumpInProgress, 202, "Dissociating"},
		{running.Name, "removememorydump", ``, "", 409, "memory dump remove request for pvc [dump] already exists"},
		{running.Name, "memorydump", `{}`, "", 409, "can't dump memory for pvc [dump] a remove memory dump request is in progress"},
	} {
		if c.before != "" {
			set(c.before)
		}
		code, message := w.ask(&front, "admin", "PUT", "virtualmachines/"+c.name+"/"+c.verb, c.body)
		if code != c.code {
			t.Errorf("%s %s: status %d, %q; want %d", c.verb, c.body, code, message, c.code)
			continue
		}
		if code >= 400 {
			if !strings.Contains(message, c.want) {
				t.Errorf("%s %s: %q; want %q", c.verb, c.body, message, c.want)
			}
			continue
		}
		assert.NilError(t, w.Get(t.Context(), client.ObjectKeyFromObject(running), running))
		r := running.Status.MemoryDumpRequest
		if string(r.Phase) != c.want || r.ClaimName != "dump" || r.FileName != nil || r.Remove != (c.want == "Dissociating") {
			t.Errorf("%s %s: then %+v", c.verb, c.body, r)
		}
	}
}
