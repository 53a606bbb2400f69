//go:build cluster && slow

package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/controller/certs"
	"github.com/nodevirt/nodevirt/test/loopfs"
)

// proxyName is the name of the export proxy's Service, as its certificate has it.
const proxyName = "virt-exportproxy.nodevirt.svc"

// TestExportProxy: virtctl downloads a disk and a VM's manifests through an Ingress and the export proxy,
// without a port that is forwarded.
func TestExportProxy(t *testing.T) {
	t.Parallel()
	const size = 96 << 20
	want := make([]byte, size)
	copy(want, "begins")
	copy(want[size-4:], "ends")
	device := loopfs.Device(t, size)
	assert.NilError(t, os.WriteFile(device, want, 0))
	localPVC(t, "outside", "Block", device)
	made(t, object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": object{"name": "outside"},
		"spec": object{"runStrategy": "Halted", "template": object{"spec": object{
			"domain":  object{"memory": object{"guest": "128Mi"}, "devices": object{}},
			"volumes": []object{{"name": "block", "persistentVolumeClaim": object{"claimName": "outside"}}},
		}}},
	})
	root, err := checkout()
	assert.NilError(t, err)
	undo(t, func(ctx context.Context) error {
		if t.Failed() {
			about, _ := suite.Kubectl(ctx, "describe", "vmexport", "outside")
			more, _ := suite.Kubectl(ctx, "describe", "pods", "--namespace=nodevirt", "--selector=app.kubernetes.io/component=export-proxy")
			logs, _ := suite.Kubectl(ctx, "logs", "--namespace=nodevirt", "deployment/virt-exportproxy")
			t.Logf("%s\n%s\n%s", about, more, logs)
		}
		for _, args := range [][]string{
			{"vmexport", "outside"}, {"service,ingress", "--namespace=nodevirt", "virt-exportproxy", "exports"}, // before the controller's rights
			{"-k", filepath.Join(root, "deploy", "export-proxy")},
			{"secret,configmap", "--namespace=nodevirt", "virt-exportproxy-tls", "kubevirt-ca", "exports-tls"},
		} {
			if _, err := suite.Kubectl(ctx, append([]string{"delete", "--ignore-not-found"}, args...)...); err != nil {
				return err
			}
		}
		return nil
	})
	assert.NilError(t, suite.DeployExportProxy(t.Context(), "nodevirt"))
	ingress(t)

	v := &virtctl{t: t, seen: map[string]bool{}}
	v.works("vmexport create outside --vm=outside", "")
	assert.NilError(t, suite.WaitFor(t.Context(), "vmexport/outside", "condition=Ready"))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmexport/outside",
		"jsonpath={.status.links.external.volumes[0].formats[0].url}="+
			"https://localhost/api/export.kubevirt.io/v1beta1/namespaces/default/virtualmachineexports/outside/volumes/outside/disk.img"))
	file := filepath.Join(t.TempDir(), "disk.raw")
	v.works("vmexport download outside --output="+file+" --format=raw", "Download finished ")
	got, err := os.ReadFile(file)
	assert.NilError(t, err)
	assert.Assert(t, bytes.Equal(got, want), "%d bytes", len(got))
	manifests := v.works("vmexport download outside --manifest --include-secret", "kind: VirtualMachine")
	for _, part := range []string{"kind: ConfigMap", "https://localhost/api/", "/volumes/outside/disk.img.gz", "x-kubevirt-export-token:"} {
		assert.Assert(t, strings.Contains(manifests, part), "%s: %s", part, manifests)
	}
	kubectl(t, "delete", "vmexport", "outside") // before the PVC
	kubectl(t, "delete", "vm", "outside")
}

// ingress has an Ingress of the export proxy for virtctl's localhost, and is its controller.
func ingress(t *testing.T) {
	t.Helper()
	now := time.Now()
	_, cert, key, err := certs.ForServer([]string{"localhost"}, now, now.Add(time.Hour))
	assert.NilError(t, err)
	assert.NilError(t, create(t.Context(), object{
		"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": "exports-tls", "namespace": "nodevirt"}, "type": "kubernetes.io/tls",
		"stringData": object{"tls.crt": string(cert), "tls.key": string(key)},
	}))
	kubectl(t, "create", "ingress", "exports", "--namespace=nodevirt", "--rule=localhost/*=virt-exportproxy:443,tls=exports-tls")

	pair, err := tls.X509KeyPair(cert, key)
	assert.NilError(t, err)
	roots := x509.NewCertPool()
	authority := kubectl(t, "get", "configmap", "kubevirt-ca", "--namespace=nodevirt", "-o", "jsonpath={.data.ca-bundle}")
	assert.Assert(t, roots.AppendCertsFromPEM([]byte(authority)), authority)
	address := kubectl(t, "get", "service", "virt-exportproxy", "--namespace=nodevirt", "-o", "jsonpath={.spec.clusterIP}")
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return suite.Nodes()[0].Dial(ctx, network, net.JoinHostPort(address, "443"))
		},
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: proxyName, MinVersion: tls.VersionTLS12},
	}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "https", Host: proxyName})
	}}
	server := &http.Server{
		Handler: proxy, ReadHeaderTimeout: patience, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	l, err := suite.Control().Listen(t.Context(), "tcp", "127.0.0.1:443")
	assert.NilError(t, err)
	go func() { _ = server.ServeTLS(l, "", "") }() // until the test ends
	t.Cleanup(func() {
		_ = server.Close()
		transport.CloseIdleConnections()
	})
}
