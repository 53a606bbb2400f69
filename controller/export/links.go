package export

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	api "kubevirt.io/api/export/v1"

	"github.com/nodevirt/nodevirt/controller/export/server"
)

// links returns where clients find what a pod serves, and the certificates that they trust: clients in
// the cluster, and those outside if an Ingress of the export proxy exists. Former links stay if that is
// unknown.
func links(w *work, p *corev1.Pod, x *external, known bool) (*api.VirtualMachineExportLinks, error) {
	var c server.Config
	if err := json.Unmarshal([]byte(p.Annotations[annotationConfig]), &c); err != nil {
		return nil, fmt.Errorf("decode annotation %s of pod %s: %w; delete the pod", annotationConfig, p.Name, err)
	}
	all := &api.VirtualMachineExportLinks{Internal: link(c, internalBase(w), p.Annotations[annotationAuthority], c.Paths(server.Internal))}
	switch {
	case !known:
		if w.was.Status != nil && w.was.Status.Links != nil {
			all.External = w.was.Status.Links.External
		}
	case x != nil:
		base := x.base(w.e)
		if c.External != base { // the manifests have another host's URLs
			c.External = ""
		}
		all.External = link(c, base, x.authority, c.Paths(server.External))
	}
	return all, nil
}

// link returns the URLs below a base, and the certificates that their clients trust.
func link(c server.Config, base, authority string, manifests map[api.ExportManifestType]string) *api.VirtualMachineExportLink {
	all := &api.VirtualMachineExportLink{Cert: authority, Backups: backupLinks(c.Backup, base)}
	for _, v := range c.Volumes {
		volume := api.VirtualMachineExportVolume{Name: v.Name}
		for _, f := range v.Formats() {
			volume.Formats = append(volume.Formats, api.VirtualMachineExportVolumeFormat{Format: f.Name, Url: base + f.Path})
		}
		all.Volumes = append(all.Volumes, volume)
	}
	for _, kind := range slices.Sorted(maps.Keys(manifests)) {
		all.Manifests = append(all.Manifests, api.VirtualMachineExportManifest{Type: kind, Url: base + manifests[kind]})
	}
	return all
}

// internalBase returns the URL of the export's Service.
func internalBase(w *work) string {
	return "https://" + w.e.Status.ServiceName + "." + w.e.Namespace + ".svc"
}
