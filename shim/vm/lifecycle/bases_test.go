package lifecycle

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/checkpoint"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// TestBasesOnVolumes: a disk on a volume began as an image that the guest's next pod need not have.
func TestBasesOnVolumes(t *testing.T) {
	image := func(id string) record.Disk { return record.Disk{Image: &imageunpack.Disk{ImageID: id}} }
	volume := []vmspec.Disk{{Name: "root", Source: vmspec.SourceImage}, {Name: "data", Source: vmspec.SourcePVC}}
	root, both := map[string]checkpoint.Base{"root": {Image: "1"}}, map[string]checkpoint.Base{"root": {Image: "1"}, "data": {Image: "2"}}
	for name, tt := range map[string]struct {
		disks map[string]record.Disk
		spec  []vmspec.Disk
		bases map[string]checkpoint.Base
		want  string
	}{
		"filled since":     {map[string]record.Disk{"root": image("1"), "data": {}}, volume, both, ""},
		"filled at both":   {map[string]record.Disk{"root": image("1"), "data": image("2")}, volume, both, ""},
		"filled before":    {map[string]record.Disk{"root": image("1"), "data": image("2")}, volume, root, ""},
		"no volume":        {map[string]record.Disk{"root": image("1")}, volume[:1], both, "its VM has 2 disks of images, and this one has 1"},
		"no volume before": {map[string]record.Disk{"root": image("1"), "data": image("2")}, volume[:1], root, `it has no disk "data" of an image`},
	} {
		t.Run(name, func(t *testing.T) {
			r := record.Container{Disks: tt.disks, Spec: vmspec.Spec{Disks: tt.spec}}
			err := new(creator).sameBases(t.Context(), r, checkpoint.Manifest{Bases: tt.bases})
			if tt.want == "" {
				assert.NilError(t, err)
			} else if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v; want %s", err, tt.want)
			}
		})
	}
}
