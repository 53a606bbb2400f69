package vmtest

import (
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/lifecycle"
)

// TestHooks is the suite of Hooks. The VM's sidecars give its domain [HookTitle].
func TestHooks(t *testing.T, h lifecycle.Hooks, r record.Container) {
	t.Helper()
	const domain = "<domain><name>a</name></domain>"
	for _, tt := range []struct {
		vm    record.Container
		title bool
	}{{record.Container{ID: "without"}, false}, {r, true}} {
		if err := h.Await(t.Context(), tt.vm); err != nil {
			t.Error(err)
		}
		xml, err := h.OnDefineDomain(t.Context(), tt.vm, domain)
		if err != nil || strings.Contains(xml, HookTitle) != tt.title || !tt.title && xml != domain {
			t.Errorf("the domain of %s is %s, %v", tt.vm.ID, xml, err)
		}
		h.Shutdown(t.Context(), tt.vm)
	}
}
