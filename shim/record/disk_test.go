package record_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/record"
)

// TestVersion2: a VM that an older shim made has one registry disk.
func TestVersion2(t *testing.T) {
	text, err := os.ReadFile("testdata/container.2.json")
	if err != nil {
		t.Fatal(err)
	}
	var r record.Container
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	want := map[string]record.Disk{"boot": {Image: &imageunpack.Disk{
		Image: "disk:1", ImageID: "sha256:2", Path: "disk/a.qcow2", Format: imageunpack.QCOW2,
	}}}
	if diff := cmp.Diff(want, r.Disks); diff != "" {
		t.Error(diff)
	}
	if r.Spec.Memory != 256<<20 || r.Config.Value.GetMetadata().GetAttempt() != 2 || r.Network == nil {
		t.Errorf("the rest is lost: %+v", r)
	}
}
