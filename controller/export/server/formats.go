package server

import (
	"net/http"
	"path"

	api "kubevirt.io/api/export/v1"
)

// format is a form in which the server serves some PVCs. Its path is KubeVirt's.
type format struct {
	name api.ExportVolumeFormat
	// file is the last part of its path.
	file string
	// disk says that it is of disks; otherwise it is of folders.
	disk  bool
	serve func(*volume, http.ResponseWriter, *http.Request) error
}

func formats() []format {
	return []format{
		{name: api.KubeVirtRaw, file: "disk.img", disk: true, serve: serveRaw},
		{name: api.KubeVirtGz, file: "disk.img.gz", disk: true, serve: serveGzip},
		{name: api.Dir, file: folderFile, serve: serveFolder},
		{name: api.ArchiveGz, file: "disk.tar.gz", serve: serveArchive},
	}
}

// of reports whether the server serves a volume in the format.
func (f format) of(v Volume) bool { return f.disk == (v.Block || v.Disk) }

func (f format) path(v Volume) string { return pathOf(v, f.file) }

func pathOf(v Volume, file string) string { return path.Join("/volumes", v.Name) + "/" + file }

// Format is a form of a volume, and the path of its URL.
type Format struct {
	Name api.ExportVolumeFormat
	Path string
}

// Formats returns the forms of a volume, in KubeVirt's order.
func (v Volume) Formats() []Format {
	var all []Format
	for _, f := range formats() {
		if f.of(v) {
			all = append(all, Format{f.name, f.path(v)})
		}
	}
	return all
}

// Paths returns the paths of an export's manifests. Their first part says from where the
// URLs in them can be reached.
func (c Config) Paths() map[api.ExportManifestType]string {
	all := map[api.ExportManifestType]string{api.AuthHeader: "/internal/manifests/secret"}
	if c.Manifests {
		all[api.AllManifests] = "/internal/manifests/all"
	}
	return all
}
