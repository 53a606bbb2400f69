#!/bin/sh
# create.sh creates a Kubernetes cluster whose nodes are VMs, in the current namespace of kubectl, and writes
# inner.kubeconfig, an administrator's file for it, into the working directory.
#
# It makes the inner cluster's certificate authority, and a token with which workers join. They reach the nodes
# in Secrets, in the first lines of their user data, which continues with node.sh. The readers of these Secrets
# can become administrators of the inner cluster.
set -eu
umask 077
example=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

namespace=$(kubectl config view --minify -o 'jsonpath={..namespace}')
domain=${namespace:-default}.svc.cluster.local
token=$(openssl rand -hex 3).$(openssl rand -hex 8)
ca=$work/ca admin=$work/admin

# key FILE writes FILE.key.
key() { openssl ecparam -name prime256v1 -genkey -noout | openssl pkcs8 -topk8 -nocrypt -out "$1.key"; }
key "$ca"
openssl req -x509 -new -key "$ca.key" -days 3650 -subj /CN=inner -out "$ca.crt" \
	-addext keyUsage=critical,digitalSignature,keyCertSign
key "$admin"
echo extendedKeyUsage=clientAuth >"$admin.extensions"
openssl req -new -key "$admin.key" -subj /O=system:masters/CN=admin -out "$admin.csr"
openssl x509 -req -in "$admin.csr" -CA "$ca.crt" -CAkey "$ca.key" -set_serial 1 -days 365 \
	-extfile "$admin.extensions" -out "$admin.crt"
fingerprint=$(openssl x509 -in "$ca.crt" -noout -pubkey | openssl pkey -pubin -outform der | openssl dgst -sha256 -r)

# user_data ROLE [FILE...] prints the user data of the nodes of a role, which get the files for kubeadm.
user_data() {
	printf '#!/bin/sh\nrole=%s\n' "$1"
	printf '%s=%s\n' api "inner-api.$domain" nodes "inner-nodes.$domain" token "$token" ca_hash "${fingerprint%% *}"
	shift
	printf 'umask 077\nmkdir -p /etc/kubernetes/pki\n'
	for file; do printf 'cat >/etc/kubernetes/pki/%s <<END\n%s\nEND\n' "${file##*/}" "$(cat "$file")"; done
	cat "$example/node.sh"
}
user_data control-plane "$ca.crt" "$ca.key" >"$work/control-plane"
user_data worker >"$work/worker"

kubectl create secret generic inner-control-plane --from-file=userdata="$work/control-plane"
kubectl create secret generic inner-worker --from-file=userdata="$work/worker"
kubectl apply -f "$example/cluster.yaml"

kubeconfig() { kubectl --kubeconfig="$work/kubeconfig" config "$@" >/dev/null; }
kubeconfig set-cluster inner --server=https://localhost:16443 --embed-certs --certificate-authority="$ca.crt"
kubeconfig set-credentials admin --embed-certs --client-certificate="$admin.crt" --client-key="$admin.key"
kubeconfig set-context inner --cluster=inner --user=admin
kubeconfig use-context inner
mv "$work/kubeconfig" inner.kubeconfig
