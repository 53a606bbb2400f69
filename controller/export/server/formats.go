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

// From is where the clients are that reach the URLs in manifests. It is the first part of the
// manifests' paths.
type From string

// The places of clients: in the cluster, and outside, from where the export proxy is reached.
const (
	Internal From = "internal"
	External From = "external"
)

// Paths returns the paths of an export's manifests.
func (c Config) Paths(from From) map[api.ExportManifestType]string {
	root := "/" + string(from) + "/manifests/"
	all := map[api.ExportManifestType]string{api.AuthHeader: root + "secret"}
	if c.Manifests && (from == Internal || c.External != "") {
		all[api.AllManifests] = root + "all"
	}
	return all
}

// manifestFiles returns the names of the files with the manifests that the server serves.
func (c Config) manifestFiles() map[From]string {
	all := map[From]string{}
	if c.Manifests {
		all[Internal] = FileManifests
	}
	if c.Manifests && c.External != "" {
		all[External] = FileExternalManifests
	}
	return all
}
