package doctor

import (
	"strings"
	"testing"
)

// TestLostPods: of the problems that the shim reports, doctor shows those that it can't find by itself.
func TestLostPods(t *testing.T) {
	for text, want := range map[string]bool{
		"":  false,
		"x": false,
		`[{"reason":"NoRoomForLibvirtd","message":"make room"}]`:                                             false,
		`[{"reason":"NoRoomForLibvirtd","message":"make room"},{"reason":"PodsLost","message":"no pod is"}]`: true,
	} {
		f, has := lostPods(text)
		if has != want || has && (f.Level != Lost || f.Detail != "no pod is" || !strings.Contains(f.Remedy, "docs/node.md")) {
			t.Errorf("%s: %+v, %t", text, f, has)
		}
	}
}
