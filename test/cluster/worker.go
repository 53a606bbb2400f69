package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/node/supervisor"
	"github.com/nodevirt/nodevirt/test/progress"
)

type object = map[string]any

// What is added to a node, beside package node's components.
const (
	Kubelet = "kubelet"
	Proxy   = "kube-proxy"
)

// nodeName is the name of a node in the cluster; they count from 1.
func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

// worker starts a node and joins it to the cluster.
func (o Options) worker(ctx context.Context, control *node.Node, i int) (*node.Node, error) {
	name := nodeName(i)
	hosts, resolv, err := o.names(i)
	if err != nil {
		return nil, err
	}
	components, _ := o.components()
	n, err := node.Start(ctx, node.Options{
		Dir: o.path(name), Bin: o.Bin, Cache: o.Cache, Hostname: name, Subnet: nodePods(i), Bound: o.Bound,
		Log:        progress.Of(name, o.Log),
		Components: components,
		Registry:   registryAddress,
		ShimConfig: o.shimConfig(i),
		Traces:     o.traceContainerd(),
		CNI:        o.cni(i), Subnet6: o.nodePods6(i),
		Binds: []supervisor.Bind{
			{From: hosts, To: "/etc/hosts"},
			{From: resolv, To: "/etc/resolv.conf"},
			{From: o.path(name, "kubelet"), To: kubeletFolder},
			{From: o.path(name, "podlogs"), To: "/var/log/pods"},
			{From: o.path(name, "containers"), To: "/var/log/containers"},
		},
	})
	if err != nil {
		return n, err
	}
	if err := o.join(ctx, control, n, i); err != nil {
		return n, err
	}
	for _, make := range []func(*node.Node, int) (node.Component, error){o.kubelet, o.proxy} {
		c, err := make(n, i)
		if err != nil {
			return n, err
		}
		if err := n.Add(ctx, c); err != nil {
			return n, err
		}
	}
	if o.Policies {
		if err := n.Add(ctx, o.policyNode(i)); err != nil {
			return n, err
		}
	}
	if o.Storage {
		return n, n.Add(ctx, o.storageNode(i))
	}
	return n, nil
}

// shimConfig lets the shim report VMs with the node's credential, which is the
// kubelet's.
func (o Options) shimConfig(i int) func(map[string]any) {
	return func(c map[string]any) {
		c["kubernetes"] = object{"kubeconfig": o.kubeconfig(i)}
		o.traceShim(c)
		if o.ShimConfig != nil {
			o.ShimConfig(c)
		}
	}
}

// cni lets pods of other nodes see a pod's own address.
func (o Options) cni(i int) func(map[string]any) {
	return func(list map[string]any) {
		list["plugins"].([]object)[0]["ipMasq"] = false
		if o.CNI != nil {
			o.CNI(list, o.kubeconfig(i))
		}
	}
}

func (o Options) kubeconfig(i int) string { return o.path("pki", nodeName(i)+".kubeconfig") }

// names writes the node's /etc/hosts and /etc/resolv.conf. It knows itself: libvirtd asks for that at each
// start of a machine. Beyond that, no name server can be reached, and none must be waited for.
func (o Options) names(i int) (hosts, resolv string, err error) {
	hosts, resolv = o.path(nodeName(i), "etc", "hosts"), o.path(nodeName(i), "etc", "resolv.conf")
	if err := os.MkdirAll(filepath.Dir(hosts), 0o755); err != nil {
		return "", "", fmt.Errorf("make folder: %w", err)
	}
	for path, text := range map[string]string{
		hosts:  fmt.Sprintf("127.0.0.1 localhost\n::1 localhost\n%s %s\n", nodeAddress(i), nodeName(i)),
		resolv: "# no name server\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return "", "", fmt.Errorf("write the node's names: %w", err)
		}
	}
	return hosts, resolv, nil
}

// proxy makes Services' addresses lead to pods.
func (o Options) proxy(_ *node.Node, i int) (node.Component, error) {
	file := o.path(nodeName(i), "etc", "kube-proxy.json")
	text, err := encode(object{
		"apiVersion":         "kubeproxy.config.k8s.io/v1alpha1",
		"kind":               "KubeProxyConfiguration",
		"clientConnection":   object{"kubeconfig": o.path("pki", "proxy.kubeconfig")},
		"hostnameOverride":   nodeName(i),
		"mode":               "nftables",
		"clusterCIDR":        o.ranges(podsRange, podsRange6),
		"healthzBindAddress": "127.0.0.1:10256",
		"metricsBindAddress": "127.0.0.1:10249",
		// These sysctls are the machine's.
		"conntrack": object{"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
	})
	return node.Component{
		Name:  Proxy,
		Args:  []string{o.bin("kube-proxy"), "--config=" + file},
		Files: map[string]string{file: text},
		Ready: healthy("http://127.0.0.1:10256/healthz"),
	}, err
}

func encode(v object) (string, error) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return "", fmt.Errorf("write configuration: %w", err)
	}
	return string(text) + "\n", nil
}
