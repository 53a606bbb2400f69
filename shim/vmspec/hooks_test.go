package vmspec_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

func TestHookSidecars(t *testing.T) {
	got, err := vmspec.HookSidecars(map[string]string{vmspec.AnnotationHooks: `[{"args": ["--version", "v1alpha2"], "image": "a", "imagePullPolicy": "IfNotPresent"},
		{"image": "b", "command": ["c"], "configMap": {"name": "d", "key": "e.sh", "hookPath": "/usr/bin/onDefineDomain"}, "pvc": {"name": "f", "volumePath": "/data"}}]`})
	want := []vmspec.HookSidecar{
		{Image: "a", ImagePullPolicy: corev1.PullIfNotPresent, Args: []string{"--version", "v1alpha2"}},
		{
			Image: "b", Command: []string{"c"}, ConfigMap: &vmspec.HookConfigMap{Name: "d", Key: "e.sh", HookPath: "/usr/bin/onDefineDomain"},
			PVC: &vmspec.HookPVC{Name: "f", VolumePath: "/data"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got, err := vmspec.HookSidecars(nil); got != nil || err != nil {
		t.Error(got, err)
	}
}

func TestBadHookSidecars(t *testing.T) {
	for text, words := range map[string]string{
		`{}`:             "not a JSON list of sidecars",
		`[{"image": 1}]`: "not a JSON list of sidecars",
		`[{"image": "a", "securityContext": {}}]`: `unknown field "securityContext"`,
		`[] []`: "text follows the JSON list",
		`[{"image": "a"}, {"image": "b", "imagePullPolicy": "Now"}]`:                                        `[1].imagePullPolicy: "Now" is none of`,
		`[` + strings.Repeat(`{"image": "a"},`, 8) + `{"image": "a"}]`:                                      "9 sidecars; at most 8",
		`[{"image": "a", "configMap": {"name": "A", "key": "k", "hookPath": "/a"}}]`:                        `configMap.name: "A"`,
		`[{"image": "a", "configMap": {"name": "a", "key": "../k", "hookPath": "/a"}}]`:                     `configMap.key: "../k"`,
		`[{"image": "a", "configMap": {"name": "a", "key": "k", "hookPath": "/a/../b"}}]`:                   `configMap.hookPath: "/a/../b"`,
		`[{"image": "a", "configMap": {"name": "a", "key": "k", "hookPath": "/var/run/kubevirt-hooks/a"}}]`: `configMap.hookPath`,
		`[{"image": "a", "pvc": {"name": "", "volumePath": "/a"}}]`:                                         `pvc.name: ""`,
		`[{"image": "a", "pvc": {"name": "a", "volumePath": "a"}}]`:                                         `pvc.volumePath: "a"`,
		`[{"image": "a", "pvc": {"name": "a", "volumePath": "/a", "sharedComputePath": "/b"}}]`:             "pvc.sharedComputePath: not supported",
	} {
		if _, err := vmspec.HookSidecars(map[string]string{vmspec.AnnotationHooks: text}); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %s", text, err, words)
		}
	}
}
