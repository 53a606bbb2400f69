package domain

import (
	"encoding/xml"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestBoardForHooks: the XML for hook sidecars has the empty element that scripts for KubeVirt fill.
func TestBoardForHooks(t *testing.T) {
	for name, hooks := range map[string]*vmspec.Hooks{"with hooks": {}, "without": nil} {
		all := smbios(vmspec.Spec{Hooks: hooks})
		if hooks == nil {
			assert.Assert(t, all == nil, name)
			continue
		}
		text, err := xml.Marshal(all)
		assert.NilError(t, err)
		if !strings.Contains(string(text), "<baseBoard></baseBoard>") {
			t.Errorf("%s: %s", name, text)
		}
	}
}
