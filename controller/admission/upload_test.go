package admission_test

import (
	"context"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/controller/admission"
)

// TestUpload: a PVC for an upload is refused at once in a cluster without CDI, and other PVCs are not.
func TestUpload(t *testing.T) {
	const upload, other = `annotations: {cdi.kubevirt.io/storage.upload.target: ""}`, `annotations: {cdi.kubevirt.io/storage.import.source: http}`
	for _, tt := range []struct {
		cdi     bool
		with    string
		allowed bool
	}{{false, upload, false}, {false, other, true}, {false, "labels: {a: b}", true}, {true, upload, true}} {
		r := newRigIn(t, admission.Webhooks{Uploads: func(context.Context, string) (bool, error) { return tt.cdi, nil }})
		pvc := "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: disk, namespace: default, " + tt.with + "}"
		answer := r.ask(t, admission.PathUpload, manifest(t, pvc, ""), nil)
		if answer.Allowed != tt.allowed || !tt.allowed && !strings.Contains(answer.Result.Message, "nodevirt image build FILE") {
			t.Errorf("CDI %t, %s: %+v", tt.cdi, tt.with, answer)
		}
	}
}
