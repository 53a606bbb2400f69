package cluster

import (
	_ "embed"
	"maps"
)

// MultusManifest is what an administrator installs for Multus: its objects, and who may read them.
//
//go:embed manifests/multus.yaml
var MultusManifest string

// Multus has the real Multus, as [Options].CNI, make the pods' networks: eth0 as before, and what a pod's annotation
// names, which it reads from the API server. They need MultusManifest.
func Multus(list map[string]any, kubeconfig string) {
	eth0 := maps.Clone(list)
	eth0["cniVersion"] = "0.4.0"
	list["cniVersion"] = "0.4.0"
	list["plugins"] = []map[string]any{{
		"type": "multus", "kubeconfig": kubeconfig, "binDir": "/usr/lib/cni", "cniDir": "/run/multus",
		"delegates": []any{eth0}, "capabilities": map[string]any{"portMappings": true},
	}}
}
