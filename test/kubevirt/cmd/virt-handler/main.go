// Command virt-handler answers what KubeVirt's suite asks its components: at /healthz, which version of the KubeVirt
// object they know, since a spec that changes the object waits until they know its change; at /metrics what the node's
// shim says there.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// address is that of KubeVirt's components.
const address = ":8443"

// shimMetrics is the socket of the node's shim, which the pod has from its node.
const shimMetrics = "/run/nodevirt/metrics.sock"

// answerTime bounds one answer.
const answerTime = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "virt-handler:", err)
		os.Exit(1) //nolint:gocritic // the process ends
	}
}

func run(ctx context.Context) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("virt-handler", nil, nil)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerTime)
		defer cancel()
		known, err := knownVersion(ctx, client)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"config-resource-version": known}) // the client is gone
	})
	mux.Handle("/metrics", &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "shim"}) },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", shimMetrics)
		}},
	})
	server := &http.Server{
		Addr: address, Handler: mux, ReadHeaderTimeout: answerTime,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServeTLS("", ""); ctx.Err() == nil {
		return err
	}
	return nil
}

// knownVersion returns the resource version of the KubeVirt object once its status says that its spec was
// observed, and 0 before.
func knownVersion(ctx context.Context, client dynamic.Interface) (string, error) {
	resource := schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "kubevirts"}
	object, err := client.Resource(resource).Namespace("nodevirt").Get(ctx, "kubevirt", metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read the KubeVirt object: %w", err)
	}
	observed, _, err := unstructured.NestedInt64(object.Object, "status", "observedGeneration")
	if err != nil {
		return "", fmt.Errorf("read the KubeVirt object: %w", err)
	}
	if observed != object.GetGeneration() {
		return "0", nil
	}
	return object.GetResourceVersion(), nil
}
