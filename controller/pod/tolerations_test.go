package pod

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestTolerations: a guest's pod stays on a node that is not heard, unless its instance says how long.
func TestTolerations(t *testing.T) {
	seconds := new(int64(30))
	for name, tt := range map[string]struct {
		given []corev1.Toleration
		added int
	}{
		"none":               {nil, 2},
		"another taint":      {[]corev1.Toleration{{Key: "vms", Operator: corev1.TolerationOpExists}}, 2},
		"another effect":     {[]corev1.Toleration{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}}, 2},
		"one of both":        {[]corev1.Toleration{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: seconds}}, 1},
		"both":               {[]corev1.Toleration{{Key: corev1.TaintNodeUnreachable}, {Key: corev1.TaintNodeNotReady}}, 0},
		"all taints, for 30": {[]corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: seconds}}, 0},
	} {
		got := tolerations(tt.given)
		if len(got) != len(tt.given)+tt.added {
			t.Errorf("%s: %+v", name, got)
		}
		for _, one := range got[len(tt.given):] {
			if one.TolerationSeconds != nil || one.Effect != corev1.TaintEffectNoExecute || one.Operator != corev1.TolerationOpExists {
				t.Errorf("%s: %+v", name, one)
			}
		}
	}
}
