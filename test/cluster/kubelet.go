package cluster

import (
	"path/filepath"

	"github.com/nodevirt/nodevirt/test/node"
)

// kubeletFolder is the kubelet's usual one, which each node has for itself.
const kubeletFolder = "/var/lib/kubelet"

// sysctls are those of the machine that a kubelet insists on. It is shown files with its values instead.
var sysctls = map[string]string{
	"kernel/keys/root_maxbytes": "25000000",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
}

func (o Options) kubelet(n *node.Node, i int) (node.Component, error) {
	etc := func(elem ...string) string {
		return filepath.Join(append([]string{o.path(nodeName(i), "etc")}, elem...)...)
	}
	text, err := encode(o.kubeletConfig(i, n.Name()))
	files := map[string]string{etc("kubelet.json"): text}
	for name, value := range sysctls {
		files[etc("sysctl", name)] = value + "\n"
	}
	return node.Component{
		Name: Kubelet,
		Args: []string{
			o.bin("devnode"), "shadow", etc("sysctl"),
			o.bin("kubelet"), "--config=" + etc("kubelet.json"), "--kubeconfig=" + o.path("pki", nodeName(i)+".kubeconfig"),
			"--hostname-override=" + nodeName(i), "--node-ip=" + o.ranges(nodeAddress(i).String(), nodeAddress6(i).String()),
			"--node-labels=nodevirt.io/node=true",
		},
		Files: files,
		Ready: healthy("http://127.0.0.1:10248/healthz"),
	}, err
}

func (o Options) kubeletConfig(i int, cgroup string) object {
	pki := func(name string) string { return o.path("pki", name) }
	_, runtime := o.components()
	c := object{
		"apiVersion":     "kubelet.config.k8s.io/v1beta1",
		"kind":           "KubeletConfiguration",
		"address":        nodeAddress(i).String(),
		"authentication": object{"anonymous": object{"enabled": false}, "webhook": object{"enabled": true}, "x509": object{"clientCAFile": pki("ca.crt")}},
		"authorization":  object{"mode": "Webhook"},

		"tlsCertFile":        pki(nodeName(i) + "-server.crt"),
		"tlsPrivateKeyFile":  pki(nodeName(i) + "-server.key"),
		"healthzBindAddress": "127.0.0.1",

		"containerRuntimeEndpoint": runtime,
		"clusterDNS":               []string{dnsService},
		"clusterDomain":            "cluster.local",

		// Pods' cgroups are below the node's, and go with it.
		"cgroupDriver":        "cgroupfs",
		"cgroupRoot":          "/" + cgroup,
		"failCgroupV1":        false,
		"failSwapOn":          false,
		"evictionHard":        object{"memory.available": "100Mi"},
		"maxPods":             110,
		"serializeImagePulls": false,
		// The machine's disk is not the node's to clean up.
		"imageGCHighThresholdPercent": 100,
		"enforceNodeAllocatable":      []string{},
	}
	o.renewOften(c)
	o.traceKubelet(c)
	if o.Kubelet != nil {
		o.Kubelet(c)
	}
	return c
}
