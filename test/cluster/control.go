package cluster

import (
	"github.com/nodevirt/nodevirt/test/node"
)

// control lists the daemons of the control plane, in the order in which they start. Flags are those of
// kubeadm's clusters, where nothing is said.
func (o Options) control() []node.Component {
	all := []node.Component{o.etcd(), o.apiserver(), o.controllerManager(), o.scheduler()}
	if o.Traces {
		all = append([]node.Component{o.collector()}, all...)
	}
	return all
}

func (o Options) etcd() node.Component {
	const client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
	return node.Component{
		Name: "etcd",
		Args: []string{
			o.bin("etcd"), "--name=control", "--data-dir=" + o.path("etcd"), "--log-level=warn",
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=control=" + peer,
			"--unsafe-no-fsync", // the data may be lost with the host
		},
		Ready: healthy(client + "/health"),
	}
}

// auditPolicy notes who asked for what, without the content.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

func (o Options) apiserver() node.Component {
	pki := func(name string) string { return o.path("pki", name) }
	policy := o.path("etc", "audit-policy.yaml")
	files := map[string]string{policy: auditPolicy}
	var traces []string
	if o.Traces {
		traces = []string{"--tracing-config-file=" + o.path("etc", "tracing.yaml")}
		files[o.path("etc", "tracing.yaml")] = tracingConfig
	}
	return node.Component{
		Name: "kube-apiserver",
		Args: append([]string{
			o.bin("kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379",
			"--advertise-address=" + controlAddress, "--secure-port=6443", "--allow-privileged=true",
			"--service-cluster-ip-range=" + o.ranges(servicesRange, servicesRange6),
			"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
			"--client-ca-file=" + pki("ca.crt"),
			"--tls-cert-file=" + pki("apiserver.crt"), "--tls-private-key-file=" + pki("apiserver.key"),
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file=" + pki("sa.pub"), "--service-account-signing-key-file=" + pki("sa.key"),
			"--kubelet-certificate-authority=" + pki("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
			"--kubelet-client-certificate=" + pki("apiserver-kubelet.crt"),
			"--kubelet-client-key=" + pki("apiserver-kubelet.key"),
			"--requestheader-client-ca-file=" + pki("front-proxy-ca.crt"),
			"--requestheader-allowed-names=front-proxy-client",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--requestheader-group-headers=X-Remote-Group", "--requestheader-username-headers=X-Remote-User",
			"--proxy-client-cert-file=" + pki("front-proxy-client.crt"),
			"--proxy-client-key-file=" + pki("front-proxy-client.key"),
			// No kube-proxy runs beside it: webhooks and aggregated APIs are reached at their pods.
			"--enable-aggregator-routing=true",
			"--audit-policy-file=" + policy, "--audit-log-path=" + o.auditLog(),
		}, traces...),
		Files: files,
		Ready: healthy("https://" + apiAddress + "/readyz"),
	}
}

func (o Options) auditLog() string { return o.path("audit.log") }

func (o Options) controllerManager() node.Component {
	kubeconfig := o.path("pki", "controller-manager.kubeconfig")
	return node.Component{
		Name: "kube-controller-manager",
		Args: append([]string{
			o.bin("kube-controller-manager"), "--kubeconfig=" + kubeconfig,
			"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=127.0.0.1", "--leader-elect=false", "--use-service-account-credentials=true",
			"--service-account-private-key-file=" + o.path("pki", "sa.key"), "--root-ca-file=" + o.path("pki", "ca.crt"),
			"--cluster-signing-cert-file=" + o.path("pki", "ca.crt"), "--cluster-signing-key-file=" + o.path("pki", "ca.key"),
			"--requestheader-client-ca-file=" + o.path("pki", "front-proxy-ca.crt"),
		}, o.missSoon()...),
		Ready: healthy("https://127.0.0.1:10257/healthz"),
	}
}

func (o Options) scheduler() node.Component {
	kubeconfig := o.path("pki", "scheduler.kubeconfig")
	return node.Component{
		Name: "kube-scheduler",
		Args: []string{
			o.bin("kube-scheduler"), "--kubeconfig=" + kubeconfig,
			"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=127.0.0.1", "--leader-elect=false",
		},
		Ready: healthy("https://127.0.0.1:10259/healthz"),
	}
}
