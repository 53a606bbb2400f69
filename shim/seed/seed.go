// Package seed writes cloud-init's data sources as disk images.
//
// It owns the names of the files and the images' labels, and reads Secrets. It leaves
// the contents of the files to package vmspec, the images' format to package iso, and
// their path and owner to the caller.
package seed

import (
	"context"
	"path"
	"strings"

	"github.com/nodevirt/nodevirt/shim/iso"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Layout is where a data source has its files.
type Layout struct {
	// Label is the volume's label, by which cloud-init finds the volume.
	Label string

	source                                    vmspec.Source
	folder, userData, metaData, networkConfig string
}

// NoCloud is the layout of the data source of this name (cloud-init's documentation,
// "NoCloud").
func NoCloud() Layout {
	return Layout{
		Label: "cidata", source: vmspec.SourceSeed,
		userData: "user-data", metaData: "meta-data", networkConfig: "network-config",
	}
}

// ConfigDrive is the layout of OpenStack's config drive, version 2 (cloud-init's
// documentation, "Config drive").
func ConfigDrive() Layout {
	return Layout{
		Label: "config-2", source: vmspec.SourceConfigDrive, folder: "openstack/latest",
		userData: "user_data", metaData: "meta_data.json", networkConfig: "network_data.json",
	}
}

// WriteDevices writes the devices with tags to the config drive at path, in place, so that a QEMU that has
// it open reads them. Its meta data must have room for them, see [vmspec.WithRoom].
func WriteDevices(config string, devices []vmspec.TaggedDevice) error {
	l := ConfigDrive()
	return iso.Edit(config, path.Join(l.folder, l.metaData), func(content []byte) ([]byte, error) {
		return vmspec.WithDevices(content, devices)
	})
}

// Write creates the image of s at path, see [iso.Write].
func Write(ctx context.Context, to string, l Layout, s vmspec.Seed) error {
	// cloud-init ignores a volume without user-data or meta-data, even if they would be empty.
	files := map[string]string{l.userData: s.UserData, l.metaData: s.MetaData}
	if s.NetworkConfig != "" {
		files[l.networkConfig] = s.NetworkConfig
	}
	return iso.Write(ctx, to, l.Label, func(f *iso.Files) error {
		for name, content := range files {
			if err := f.Add(path.Join(l.folder, name), 0o600, strings.NewReader(content)); err != nil {
				return err
			}
		}
		return nil
	})
}
