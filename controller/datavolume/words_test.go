package datavolume

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestSays: CDI's reasons are errors, words or the names of steps, with conditions as CDI writes them.
func TestSays(t *testing.T) {
	for _, row := range []struct{ kind, status, reason, message, failure, words string }{
		{"Running", "False", "Error", "got 404", "got 404", ""},
		{"Running", "False", "ImagePullFailed", "", "ImagePullFailed", ""},
		{"Running", "False", "CreateContainerConfigError", `secret "key" not found`, `CreateContainerConfigError: secret "key" not found`, ""},
		{"Running", "False", "Error and ContainerCreating", "got 404 and ", "Error and ContainerCreating: got 404 and ", ""},
		{"Running", "False", "Unschedulable", "Importer pod cannot be scheduled", "Unschedulable: Importer pod cannot be scheduled", ""},
		{"Running", "False", "Pending", "waits", "", ""},
		{"Running", "True", "Error", "got 404", "", ""},
		{"Running", "False", "ContainerCreating and Pod is running", " and ", "", ""},
		{"Bound", "Unknown", "ErrExceededQuota", "exceeded quota", "ErrExceededQuota: exceeded quota", ""},
		{"Bound", "False", "ErrClaimNotValid", "PVC size is missing", "ErrClaimNotValid: PVC size is missing", ""},
		{"Bound", "False", "ClaimLost", "Claim Lost", "ClaimLost: Claim Lost", ""},
		{"Bound", "False", "CloneWithoutSource", "The source pvc golden doesn't exist", "CloneWithoutSource: The source pvc golden doesn't exist", ""},
		{"Bound", "False", "NotFound", "No PVC found", "", ""},
		{"Bound", "False", "Pending", "PVC data Pending", "", ""},
		{"Ready", "False", "CloneSourceInUse", "pod default/web using PersistentVolumeClaim golden", "", "CloneSourceInUse: pod default/web using PersistentVolumeClaim golden"},
		{"Ready", "False", "ImportInProgress", "Import into data in progress", "", ""},
		{"Ready", "False", "CloneFromSnapshotSourceInProgress", "in progress", "", ""},
	} {
		object := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{
			map[string]any{"type": "Ready", "status": "False"},
			map[string]any{"type": row.kind, "status": row.status, "reason": row.reason, "message": row.message},
		}}}}
		if failure, words := says(object); failure != row.failure || words != row.words {
			t.Errorf("%+v: error %q, words %q", row, failure, words)
		}
	}
}
