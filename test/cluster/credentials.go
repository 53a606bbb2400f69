package cluster

import (
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nodevirt/nodevirt/test/cluster/pki"
)

// Kubernetes' own names of users and groups; see kubernetes.io/docs/setup/best-practices/certificates.
const (
	admins = "system:masters"
	nodes  = "system:nodes"
)

// keep writes the certificates and kubeconfig files of a cluster to its folder pki, once.
func (o Options) keep() error {
	if _, err := os.Stat(o.path("pki")); err == nil {
		for _, id := range []string{nodeName(o.Nodes), "csi", "policy"} {
			if _, err := os.Stat(o.path("pki", id+".crt")); err != nil {
				return fmt.Errorf("the cluster in %s was made for fewer than %d nodes, or before a change: stop it first: %w",
					o.Dir, o.Nodes, err)
			}
		}
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	files, err := o.credentials()
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(o.Dir, "pki-")
	if err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(tmp, name), text, 0o600); err != nil {
			return fmt.Errorf("write certificates: %w", err)
		}
	}
	return os.Rename(tmp, o.path("pki"))
}

// credentials are the files of the folder pki.
func (o Options) credentials() (map[string][]byte, error) {
	ca, err := pki.NewAuthority("nodevirt-test-cluster")
	if err != nil {
		return nil, err
	}
	// The proxy that speaks for users to aggregated APIs must not be mistaken for a
	// user.
	front, err := pki.NewAuthority("nodevirt-test-front-proxy")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	if err := serviceAccounts(files); err != nil {
		return nil, err
	}
	for name, by := range map[string]*pki.Authority{"ca": ca, "front-proxy-ca": front} {
		pair, err := by.Pair()
		if err != nil {
			return nil, err
		}
		put(files, name, pair)
	}
	proxy, err := front.Issue(pki.Identity{Name: "front-proxy-client"})
	if err != nil {
		return nil, err
	}
	put(files, "front-proxy-client", proxy)
	for name, id := range o.identities() {
		pair, err := ca.Issue(id)
		if err != nil {
			return nil, err
		}
		put(files, name, pair)
		if len(id.Hosts) > 0 {
			continue
		}
		files[name+".kubeconfig"], err = pki.Kubeconfig("https://"+apiAddress, files["ca.crt"], pair)
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// identities are those that need a certificate, by the names of their files.
func (o Options) identities() map[string]pki.Identity {
	all := map[string]pki.Identity{
		"apiserver": {Name: "kube-apiserver", Hosts: []string{
			controlAddress, "127.0.0.1", apiService, "localhost",
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		}},
		"apiserver-kubelet":  {Name: "kube-apiserver-kubelet-client", Group: admins},
		"admin":              {Name: "kubernetes-admin", Group: admins},
		"controller-manager": {Name: "system:kube-controller-manager"},
		"scheduler":          {Name: "system:kube-scheduler"},
		"proxy":              {Name: "system:kube-proxy"},
		"csi":                {Name: "csi-sidecars", Group: admins},
		"policy":             {Name: "network-policy", Group: admins},
	}
	for _, name := range o.Joining {
		all[name] = pki.Identity{Name: "system:node:" + name, Group: nodes}
	}
	for i := 1; i <= o.Nodes; i++ {
		name := nodeName(i)
		all[name] = pki.Identity{Name: "system:node:" + name, Group: nodes}
		all[name+"-server"] = pki.Identity{
			Name: "system:node:" + name, Group: nodes, Hosts: []string{nodeAddress(i).String(), "127.0.0.1", name},
		}
	}
	return all
}

// serviceAccounts adds the key that signs their tokens.
func serviceAccounts(files map[string][]byte) (err error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("make key of service accounts: %w", err)
	}
	if files["sa.key"], err = pki.PrivateKey(key); err != nil {
		return err
	}
	files["sa.pub"], err = pki.PublicKey(key)
	return err
}

func put(files map[string][]byte, name string, p pki.Pair) {
	files[name+".crt"], files[name+".key"] = p.Cert, p.Key
}
