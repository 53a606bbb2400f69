package admission_test

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodevirt/nodevirt/controller/admission"
)

// TestEvict: a refused eviction is one to try again, as with a disruption budget.
func TestEvict(t *testing.T) {
	r := newRig(t)
	const eviction = "apiVersion: policy/v1\nkind: Eviction\nmetadata: {name: "
	if answer := r.ask(t, admission.PathEvict, manifest(t, eviction+"free}", ""), nil); !answer.Allowed {
		t.Errorf("refused: %+v", answer.Result)
	}
	for options, want := range map[string]string{"{}": "no eviction, dry run false", "{dryRun: [All]}": "no eviction, dry run true"} {
		answer := r.ask(t, admission.PathEvict, manifest(t, eviction+"held}\ndeleteOptions: "+options, ""), nil)
		if s := answer.Result; answer.Allowed || s.Code != http.StatusTooManyRequests || s.Reason != metav1.StatusReasonTooManyRequests || s.Message != want {
			t.Errorf("options %s: %+v", options, answer)
		}
	}
}
