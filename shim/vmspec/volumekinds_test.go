package vmspec

import "testing"

// TestVolumeKindsAreWhole checks that each kind a VMI can name says all that its
// readers ask for.
func TestVolumeKindsAreWhole(t *testing.T) {
	for _, k := range fieldKinds() {
		if k.given == nil || k.read == nil || len(k.rows)+len(k.podRows) == 0 {
			t.Errorf("%s: given, read or rows is missing", k.Field)
		}
		if needed := k.Needs != NeedNothing; needed != (k.pod != nil) {
			t.Errorf("%s: needs %q of its pod, and pod is set: %t", k.Field, k.Needs, k.pod != nil)
		}
	}
}
