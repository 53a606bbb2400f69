// Package cluster runs a Kubernetes cluster on one machine: etcd, the control plane and nodes, each of
// these a node of package node with a kubelet whose only container runtime is the shim, and kube-proxy;
// and CoreDNS as cluster DNS. `make cluster` uses it, and every test that needs a real kubelet.
//
// It owns the cluster's life, certificates and configuration. What nodes are made of is package node's
// matter, what runs in the cluster the caller's. Like a node, a cluster changes nothing on the host except
// its own cgroups; it is reached through a port of the machine's loopback.
//
//	control ── cluster0 ─┬─ eth0 node-1    kubelet, kube-proxy; shim, containerd, libvirtd
//	10.200.0.1  bridge   └─ eth0 node-2 …  10.200.0.11, pods 10.244.1.0/24
//	etcd, kube-apiserver,
//	kube-controller-manager,    with Options.Storage, csi-driver on each node;
//	kube-scheduler, registry;   with Options.Policies, network-policy
//	CSI sidecars
package cluster
