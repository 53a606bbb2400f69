package podstatus

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"k8s.io/client-go/tools/clientcmd"
	clientapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestLookup: only a list of the node's pods without the pod proves that the pod is gone.
func TestLookup(t *testing.T) {
	const list = `{"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": [%s]}`
	for name, tt := range map[string]struct {
		user, answer string
		code         int
		gone, fails  bool
	}{
		"the pod":              {"system:node:node-1", fmt.Sprintf(list, `{"metadata": {"uid": "u"}}`), 200, false, false},
		"none":                 {"system:node:node-1", fmt.Sprintf(list, ""), 200, true, false},
		"another of its name":  {"system:node:node-1", fmt.Sprintf(list, `{"metadata": {"uid": "v"}}`), 200, true, false},
		"a released pod":       {"system:node:node-1", fmt.Sprintf(list, `{"metadata": {"uid": "u", "annotations": {"nodevirt.io/released": ""}}}`), 200, true, false},
		"no list":              {"system:node:node-1", `{}`, 200, false, true},
		"a list of no version": {"system:node:node-1", `{"kind": "PodList", "items": []}`, 200, false, true},
		"nonsense":             {"system:node:node-1", `<html>`, 200, false, true},
		"no right":             {"system:node:node-1", `{}`, 403, false, true},
		"no such path":         {"system:node:node-1", `{}`, 404, false, true},
		"an error":             {"system:node:node-1", `{}`, 500, false, true},
		"no node's credential": {"admin", fmt.Sprintf(list, ""), 200, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					_, _ = fmt.Fprintf(w, `{"status": {"userInfo": {"username": %q}}}`, tt.user)
					return
				}
				if r.URL.Path != "/api/v1/namespaces/default/pods" || r.URL.Query().Get("fieldSelector") != "metadata.name=p,spec.nodeName=node-1" ||
					r.URL.Query().Has("resourceVersion") {
					t.Errorf("request %s", r.URL)
				}
				w.WriteHeader(tt.code)
				_, _ = w.Write([]byte(tt.answer))
			}))
			defer web.Close()
			path := filepath.Join(t.TempDir(), "kubelet.conf")
			config := clientapi.NewConfig()
			config.Clusters["c"] = &clientapi.Cluster{Server: web.URL}
			config.Contexts["x"] = &clientapi.Context{Cluster: "c"}
			config.CurrentContext = "x"
			if err := clientcmd.WriteToFile(*config, path); err != nil {
				t.Fatal(err)
			}
			gone, err := NewLookup(path).Gone(t.Context(), Pod{Namespace: "default", Name: "p", UID: "u"})
			if gone != tt.gone || (err != nil) != tt.fails {
				t.Errorf("gone %t, error %v", gone, err)
			}
		})
	}
}

// TestGoneWithoutACredential: a shim without a kubeconfig, or with one that does not exist yet, takes no pod for gone.
func TestGoneWithoutACredential(t *testing.T) {
	pod := Pod{Namespace: "default", Name: "p", UID: "u"}
	if gone, err := NewLookup("").Gone(t.Context(), pod); gone || err != nil {
		t.Errorf("gone %t, error %v", gone, err)
	}
	if gone, err := NewLookup(filepath.Join(t.TempDir(), "none")).Gone(t.Context(), pod); gone || err == nil {
		t.Errorf("gone %t, error %v", gone, err)
	}
}

// TestPodOf: pods of crictl and static pods are no API server's.
func TestPodOf(t *testing.T) {
	for source, want := range map[string]bool{"api": true, "file": false, "http": false, "": false} {
		_, ok := PodOf(&runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Uid: "u"}, Annotations: map[string]string{"kubernetes.io/config.source": source},
		})
		if ok != want {
			t.Errorf("source %q: %t", source, ok)
		}
	}
}
