# node.sh makes a guest a node of the inner cluster. create.sh puts the variables role, api, nodes, token and
# ca_hash before it, and on the control plane the files of the certificate authority. cloud-init runs it once.
set -eu
umask 022
export HOME=/root

# The inner cluster's networks, which the outer one must not have. A CNI plug-in may take pod-network's place.
pods=10.50.0.0/16 services=10.60.0.0/16

printf '%s\n' overlay br_netfilter vxlan >/etc/modules-load.d/kubernetes.conf
printf '%s\n' net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1 >/etc/sysctl.d/99-kubernetes.conf
systemctl restart systemd-modules-load systemd-sysctl
# systemd-resolved asks no DNS server for names in .local, such as the Services'.
[ ! -e /run/systemd/resolve/resolv.conf ] || ln -sf /run/systemd/resolve/resolv.conf /etc/resolv.conf
until ip=$(ip -4 route get 192.0.2.1 | sed -n 's/.* src \([0-9.]*\).*/\1/p') && [ "$ip" ]; do sleep 1; done

# The network of the inner pods, which the outer cluster does not see: a bridge on each node, and a VXLAN
# between these.
cat >/usr/local/sbin/pod-network <<'END'
#!/bin/sh
# pod-network RANGE IP NAME connects this node's part of the pods' RANGE to the nodes whose addresses NAME has
# in DNS; this node's is IP.
set -eu
all=$1 ip=$2 name=$3 own='' peers=''
kubelet=/etc/kubernetes/kubelet.conf
until [ "$own" ]; do
	sleep 10
	[ ! -e $kubelet ] || own=$(kubectl --kubeconfig=$kubelet get node "$(hostname)" -o 'jsonpath={.spec.podCIDR}') || true
done
prefix=${own%.*}
device=$(ip -4 route get 192.0.2.1 | sed -n 's/.* dev \([^ ]*\).*/\1/p')
mtu=$(($(cat "/sys/class/net/$device/mtu") - 50))
ip link show cni0 >/dev/null 2>&1 || ip link add cni0 type bridge
ip link show pods >/dev/null 2>&1 || ip link add pods mtu "$mtu" master cni0 type vxlan id 50 dstport 8472
ip address replace "$prefix.1/${all#*/}" dev cni0
ip link set cni0 up
ip link set pods up
cat >/etc/cni/net.d/pods.new <<LIST
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true, "mtu": $mtu,
   "ipam": {"type": "host-local", "routes": [{"dst": "0.0.0.0/0"}], "ranges": [[
     {"subnet": "$all", "rangeStart": "$prefix.2", "rangeEnd": "$prefix.254", "gateway": "$prefix.1"}]]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
LIST
mv /etc/cni/net.d/pods.new /etc/cni/net.d/10-pods.conflist
while :; do
	found=$(getent ahostsv4 "$name" | awk -v ip="$ip" '$1 != ip { print $1 }' | sort -u)
	if [ "$found" ] && [ "$found" != "$peers" ]; then
		for peer in $peers; do bridge fdb del 00:00:00:00:00:00 dev pods dst "$peer"; done
		for peer in $found; do bridge fdb append 00:00:00:00:00:00 dev pods dst "$peer"; done
		peers=$found
	fi
	sleep 5
done
END
chmod 755 /usr/local/sbin/pod-network
cat >/etc/systemd/system/pod-network.service <<END
[Unit]
Description=Network of Kubernetes' pods

[Service]
ExecStart=/usr/local/sbin/pod-network $pods $ip $nodes
# A new link has no peers.
ExecStopPost=-/sbin/ip link delete pods
Restart=always
RestartSec=5

[Install]
WantedBy=multi-user.target
END
mkdir -p /etc/cni/net.d
systemctl daemon-reload
systemctl enable --now --no-block pod-network

# The timeouts, and probes that are patient and rare, are for nodes without KVM.
mkdir -p /etc/kubernetes/patches
for component in etcd kube-apiserver kube-scheduler kube-controller-manager; do
	{
		printf 'spec:\n  containers:\n    - name: %s\n' $component
		printf '      livenessProbe: {periodSeconds: 30, timeoutSeconds: 60, failureThreshold: 20}\n'
		[ $component = kube-controller-manager ] || printf '      readinessProbe: {periodSeconds: 30, timeoutSeconds: 60}\n'
	} >/etc/kubernetes/patches/$component.yaml
done
cat >/run/kubeadm.yaml <<END
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens: [{token: $token, ttl: 0s}]
nodeRegistration: {kubeletExtraArgs: [{name: node-ip, value: $ip}]}
patches: {directory: /etc/kubernetes/patches}
timeouts: {controlPlaneComponentHealthCheck: 30m, kubeletHealthCheck: 30m, kubernetesAPICall: 30m}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: $(kubeadm version -o short)
controlPlaneEndpoint: $api:6443
apiServer: {certSANs: [localhost]}
# They are alone, and would end whenever a busy machine keeps them from renewing a lease in time.
controllerManager: {extraArgs: [{name: leader-elect, value: "false"}]}
scheduler: {extraArgs: [{name: leader-elect, value: "false"}]}
networking: {podSubnet: $pods, serviceSubnet: $services}
encryptionAlgorithm: ECDSA-P256
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery: {bootstrapToken: {apiServerEndpoint: "$api:6443", token: $token, caCertHashes: ["sha256:$ca_hash"]}}
nodeRegistration: {kubeletExtraArgs: [{name: node-ip, value: $ip}]}
timeouts: {discovery: 2h, tlsBootstrap: 30m, kubeletHealthCheck: 30m, kubernetesAPICall: 30m}
END
chmod 600 /run/kubeadm.yaml
case $role in
control-plane)
	echo "$ip $api" >>/etc/hosts # it reaches itself without the Service
	kubeadm init --config=/run/kubeadm.yaml
	;;
worker) kubeadm join --config=/run/kubeadm.yaml ;;
esac
