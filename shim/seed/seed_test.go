package seed_test

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodevirt/nodevirt/shim/seed"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/isofs"
)

func TestWrite(t *testing.T) {
	whole := vmspec.Seed{UserData: "#cloud-config\n", MetaData: "instance-id: a\n", NetworkConfig: "version: 2\n"}
	for _, tt := range []struct {
		name   string
		layout seed.Layout
		seed   vmspec.Seed
		label  string
		want   map[string]string
	}{
		{"NoCloud", seed.NoCloud(), whole, "cidata", map[string]string{
			"user-data": "#cloud-config\n", "meta-data": "instance-id: a\n", "network-config": "version: 2\n",
		}},
		{"meta data alone", seed.NoCloud(), vmspec.Seed{MetaData: "a: b\n"}, "cidata", map[string]string{"user-data": "", "meta-data": "a: b\n"}},
		{"nothing", seed.NoCloud(), vmspec.Seed{}, "cidata", map[string]string{"user-data": "", "meta-data": ""}},
		{"config drive", seed.ConfigDrive(), whole, "config-2", map[string]string{
			"openstack/latest/user_data": "#cloud-config\n", "openstack/latest/meta_data.json": "instance-id: a\n",
			"openstack/latest/network_data.json": "version: 2\n",
		}},
		{"config drive without a network", seed.ConfigDrive(), vmspec.Seed{}, "config-2", map[string]string{
			"openstack/latest/user_data": "", "openstack/latest/meta_data.json": "",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "seed.iso")
			if err := seed.Write(t.Context(), path, tt.layout, tt.seed); err != nil {
				t.Fatal(err)
			}
			image := isofs.Read(t, path)
			if diff := cmp.Diff(tt.want, image.Files); diff != "" || image.Label != tt.label {
				t.Errorf("label %q; files (-want +got):\n%s", image.Label, diff)
			}
			for name := range tt.want {
				if mode := image.Modes[name]; mode != 0o600 {
					t.Errorf("%s has the mode %s", name, mode)
				}
			}
		})
	}
}
