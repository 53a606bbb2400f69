package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/netip"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/cluster/pki"
)

func parse(t *testing.T, p pki.Pair) *x509.Certificate {
	t.Helper()
	if _, err := tls.X509KeyPair(p.Cert, p.Key); err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(p.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	assert.NilError(t, err)
	return cert
}

func TestCertificatesAreOfTheirAuthorityAlone(t *testing.T) {
	ours, err := pki.NewAuthority("ours")
	assert.NilError(t, err)
	others, err := pki.NewAuthority("others")
	assert.NilError(t, err)
	server, err := ours.Issue(pki.Identity{Name: "server", Hosts: []string{"10.0.0.1", "server.example"}})
	assert.NilError(t, err)
	client, err := ours.Issue(pki.Identity{Name: "somebody", Group: "people"})
	assert.NilError(t, err)
	for _, c := range []struct {
		name  string
		by    *pki.Authority
		pair  pki.Pair
		host  string
		usage x509.ExtKeyUsage
		valid bool
	}{
		{"a server by its name", ours, server, "server.example", x509.ExtKeyUsageServerAuth, true},
		{"a server by its address", ours, server, netip.MustParseAddr("10.0.0.1").String(), x509.ExtKeyUsageServerAuth, true},
		{"a server by another name", ours, server, "client.example", x509.ExtKeyUsageServerAuth, false},
		{"a server as a client", ours, server, "", x509.ExtKeyUsageClientAuth, false},
		{"a client", ours, client, "", x509.ExtKeyUsageClientAuth, true},
		{"a client as a server", ours, client, "", x509.ExtKeyUsageServerAuth, false},
		{"a client of another authority", others, client, "", x509.ExtKeyUsageClientAuth, false},
	} {
		root, err := c.by.Pair()
		assert.NilError(t, err)
		roots := x509.NewCertPool()
		roots.AddCert(parse(t, root))
		_, err = parse(t, c.pair).Verify(x509.VerifyOptions{
			Roots: roots, DNSName: c.host, KeyUsages: []x509.ExtKeyUsage{c.usage},
		})
		if (err == nil) != c.valid {
			t.Errorf("%s: valid %t: %v", c.name, c.valid, err)
		}
	}
	if got := parse(t, client).Subject.Organization; len(got) != 1 || got[0] != "people" {
		t.Errorf("groups: %q", got)
	}
}

func TestAKubeconfigHoldsWhatItNeeds(t *testing.T) {
	text, err := pki.Kubeconfig("https://10.0.0.1:6443", []byte("authority"), pki.Pair{Cert: []byte("cert"), Key: []byte("key")})
	assert.NilError(t, err)
	var c struct {
		Clusters []struct {
			Cluster struct {
				Server string
				CA     []byte `json:"certificate-authority-data"`
			}
		}
		Users []struct {
			User struct {
				Cert []byte `json:"client-certificate-data"`
				Key  []byte `json:"client-key-data"`
			}
		}
	}
	assert.NilError(t, json.Unmarshal(text, &c))
	if len(c.Clusters) != 1 || len(c.Users) != 1 {
		t.Fatalf("%s", text)
	}
	if k := c.Clusters[0].Cluster; k.Server != "https://10.0.0.1:6443" || string(k.CA) != "authority" {
		t.Errorf("cluster: %+v", k)
	}
	if u := c.Users[0].User; string(u.Cert) != "cert" || string(u.Key) != "key" {
		t.Errorf("user: %+v", u)
	}
}
