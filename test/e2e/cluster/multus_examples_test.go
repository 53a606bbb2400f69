//go:build cluster && examples

package cluster

import (
	"maps"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// cni has the real Multus make the pods' networks, since KubeVirt's examples ask for them: eth0 as
// before, and what a pod's annotation names, which it reads from the API server.
func cni() func(map[string]any, string) {
	return func(list map[string]any, kubeconfig string) {
		eth0 := maps.Clone(list)
		eth0["cniVersion"] = "0.4.0"
		list["cniVersion"] = "0.4.0"
		list["plugins"] = []object{{
			"type": "multus", "kubeconfig": kubeconfig, "binDir": "/usr/lib/cni", "cniDir": "/run/multus",
			"delegates": []object{eth0}, "capabilities": object{"portMappings": true},
		}}
	}
}

// networks is what an administrator installs for Multus, and the network that KubeVirt's examples are on.
const networks = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: network-attachment-definitions.k8s.cni.cncf.io}
spec:
  group: k8s.cni.cncf.io
  scope: Namespaced
  names:
    {plural: network-attachment-definitions, singular: network-attachment-definition, kind: NetworkAttachmentDefinition}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {config: {type: string}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: multus}
rules:
- {apiGroups: [k8s.cni.cncf.io], resources: [network-attachment-definitions], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: multus}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: multus}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:nodes"}]
`

const ptp = `apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: ptp-conf}
spec:
  config: |
    {"cniVersion": "0.4.0", "name": "ptp", "type": "ptp", "mtu": 1400,
     "ipam": {"type": "host-local", "subnet": "10.250.0.0/24", "dataDir": "/var/lib/cni/networks"}}
`

// withNetworks makes the network that the examples name.
func withNetworks(t *testing.T) {
	t.Helper()
	assert.NilError(t, suite.Apply(t.Context(), networks))
	assert.NilError(t, suite.WaitFor(t.Context(), "crd/network-attachment-definitions.k8s.cni.cncf.io", "condition=Established"))
	assert.NilError(t, suite.Apply(t.Context(), ptp))
}

// A VMI's default network of Multus takes the place of the pod's own: the guest has its address. The name
// is one of the VMI's namespace.
func TestADefaultNetworkIsThePods(t *testing.T) {
	withNetworks(t)
	name := made(t, strangersVMI("on-default-network", func(spec, _, devices object) {
		devices["interfaces"] = []object{{"name": "default", "bridge": object{}}}
		spec["networks"] = []object{{"name": "default", "multus": object{"networkName": "ptp-conf", "default": true}}}
	}))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={.status.phase}=Running"))
	assert.NilError(t, says(t.Context(), name, "ip=10.250.0."))
	address := vmiField(t, name, ".status.interfaces[0].ipAddress")
	assert.Assert(t, strings.HasPrefix(address, "10.250.0."), address)
	assert.Equal(t, vmiField(t, name, ".status.interfaces[*].name"), "default")
}
