package domainxml_test

import (
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/shim/hooks/domainxml"
)

// TestTextInParts: text between comments, of which a document of the allowed length can have a million, is joined once.
func TestTextInParts(t *testing.T) {
	parts := strings.Repeat("a<!---->", 500_000)
	changed := strings.Replace(domain, "Nehalem", parts, 1)
	if _, err := domainxml.Check(domain, changed); err != nil {
		t.Error(err)
	}
}
