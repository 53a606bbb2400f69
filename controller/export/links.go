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

// links returns where clients in the cluster find what a pod serves, and the certificate that they
// trust.
func links(w *work, p *corev1.Pod) (*api.VirtualMachineExportLinks, error) {
	var c server.Config
	if err := json.Unmarshal([]byte(p.Annotations[annotationConfig]), &c); err != nil {
		return nil, fmt.Errorf("decode annotation %s of pod %s: %w; delete the pod", annotationConfig, p.Name, err)
	}
	all := &api.VirtualMachineExportLink{Cert: p.Annotations[annotationAuthority]}
	for _, v := range c.Volumes {
		volume := api.VirtualMachineExportVolume{Name: v.Name}
		for _, f := range v.Formats() {
			volume.Formats = append(volume.Formats, api.VirtualMachineExportVolumeFormat{Format: f.Name, Url: url(w, f.Path)})
		}
		all.Volumes = append(all.Volumes, volume)
	}
	all.Backups = backupLinks(w, c.Backup)
	paths := c.Paths()
	for _, kind := range slices.Sorted(maps.Keys(paths)) {
		all.Manifests = append(all.Manifests, api.VirtualMachineExportManifest{Type: kind, Url: url(w, paths[kind])})
	}
	return &api.VirtualMachineExportLinks{Internal: all}, nil
}

// url returns the URL of a path at the export's Service.
func url(w *work, path string) string {
	return "https://" + w.e.Status.ServiceName + "." + w.e.Namespace + ".svc" + path
}
