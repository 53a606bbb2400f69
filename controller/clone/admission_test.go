package clone

import (
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/controller/admission"
)

// TestTarget: a clone without a target gets one, which stays when its author applies it again.
func TestTarget(t *testing.T) {
	given := func() admission.Tree {
		return admission.Tree{"source": admission.Tree{"name": strings.Repeat("web", 30)}}
	}
	fill, spec := rules().Default, given()
	fill(new(admission.Review), spec)
	target, _ := spec["target"].(admission.Tree)
	name, _ := target["name"].(string)
	if target["kind"] != kindVM || target["apiGroup"] != "kubevirt.io" || !strings.HasPrefix(name, "clone-webweb") || len(name) > 63 {
		t.Errorf("target %v", target)
	}
	again := given()
	fill(&admission.Review{Old: admission.Tree{"spec": spec}}, again)
	if got, _ := again["target"].(admission.Tree); got["name"] != name || got["kind"] != kindVM {
		t.Errorf("applied again: %v", again)
	}
	none := given()
	fill(&admission.Review{Old: admission.Tree{"spec": given()}}, none)
	if none["target"] != nil {
		t.Errorf("a clone that has had none: %v", none)
	}
}
