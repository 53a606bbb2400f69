package nodelabels

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/client-go/tools/clientcmd"
	clientapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nodevirt/nodevirt/shim/domain"
)

// server is an API server with one Node.
type server struct {
	t        *testing.T
	node     []byte // as JSON; nil until it is registered
	user     string
	requests []string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	switch {
	case r.URL.Path == "/apis/authentication.k8s.io/v1/selfsubjectreviews" && r.Method == http.MethodPost:
		_ = json.NewEncoder(w).Encode(map[string]any{"status": map[string]any{"userInfo": map[string]any{"username": s.user}}})
	case r.URL.Path != "/api/v1/nodes/node-1" || s.node == nil:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodPatch && r.Header.Get("Content-Type") == "application/merge-patch+json":
		patch, err := io.ReadAll(r.Body)
		if err != nil {
			s.t.Error(err)
		}
		if s.node, err = jsonpatch.MergePatch(s.node, patch); err != nil {
			s.t.Errorf("%s: %v", patch, err)
		}
		_, _ = w.Write(s.node)
	default:
		_, _ = w.Write(s.node)
	}
}

func (s *server) labels() map[string]string {
	var n metadata
	if err := json.Unmarshal(s.node, &n); err != nil {
		s.t.Fatal(err)
	}
	return n.Metadata.Labels
}

// expect holds the requests since the last time against what should have been.
func (s *server) expect(want ...string) {
	s.t.Helper()
	if !slices.Equal(s.requests, want) {
		s.t.Errorf("requests %q, want %q", s.requests, want)
	}
	s.requests = nil
}

const (
	review   = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews"
	getNode  = "GET /api/v1/nodes/node-1"
	patchOne = "PATCH /api/v1/nodes/node-1"
)

func newWriter(t *testing.T, s *server, source Source) *Writer {
	t.Helper()
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	path := filepath.Join(t.TempDir(), "kubelet.conf")
	err := clientcmd.WriteToFile(clientapi.Config{
		Clusters:       map[string]*clientapi.Cluster{"c": {Server: web.URL}},
		AuthInfos:      map[string]*clientapi.AuthInfo{"n": {}},
		Contexts:       map[string]*clientapi.Context{"x": {Cluster: "c", AuthInfo: "n"}},
		CurrentContext: "x",
	}, path)
	if err != nil {
		t.Fatal(err)
	}
	return New(path, source, slog.New(slog.NewTextHandler(t.Output(), nil)))
}

// TestWriter labels a node that the kubelet registers late, whose libvirt changes, goes
// away and comes back.
func TestWriter(t *testing.T) {
	caps, down := domain.Capabilities{Models: []string{"EPYC"}}, error(nil)
	s := &server{t: t, user: "system:node:node-1"}
	w := newWriter(t, s, func(context.Context) (domain.Capabilities, error) { return caps, down })
	step := func(want map[string]string, requests ...string) {
		t.Helper()
		w.step(t.Context())
		if got := s.labels(); !maps.Equal(got, want) {
			t.Errorf("labels %v, want %v", got, want)
		}
		s.expect(requests...)
	}

	w.step(t.Context())
	s.expect(review, getNode)
	s.node = []byte(`{"metadata": {"uid": "u", "labels": {"zone": "a", "cpu-model.node.kubevirt.io/Nehalem": "true"}}}`)
	labelled := map[string]string{"zone": "a", "kubevirt.io/schedulable": "true", "cpu-model.node.kubevirt.io/EPYC": "true"}
	step(labelled, getNode, patchOne)
	step(labelled) // nothing changed: no request

	down = errors.New("libvirtd is away")
	away := maps.Clone(labelled)
	delete(away, "kubevirt.io/schedulable")
	step(away, getNode, patchOne)
	step(away)

	down, caps.Models = nil, nil
	step(map[string]string{"zone": "a", "kubevirt.io/schedulable": "true"}, getNode, patchOne)

	// Labels that someone removed return.
	s.node = []byte(`{"metadata": {"uid": "u", "labels": {"zone": "a"}}}`)
	w.at = time.Now().Add(-again)
	step(map[string]string{"zone": "a", "kubevirt.io/schedulable": "true"}, getNode, patchOne)
}

// TestReturnedNode: a Node that was made again has its labels within a minute, whatever was written before.
func TestReturnedNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &Writer{source: func(context.Context) (domain.Capabilities, error) {
			return domain.Capabilities{Models: []string{"EPYC"}}, nil
		}, log: slog.New(slog.DiscardHandler)}
		reads := 0
		w.update = func(context.Context, map[string]string, bool) error {
			reads++
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		w.Run(ctx)
		if reads < 10 || reads > 21 {
			t.Errorf("the Node was read %d times in ten minutes", reads)
		}
	})
}

// TestSkip: KubeVirt's annotation keeps the labels from a node.
func TestSkip(t *testing.T) {
	s := &server{t: t, user: "system:node:node-1",
		node: []byte(`{"metadata": {"labels": {}, "annotations": {"node-labeller.kubevirt.io/skip-node": ""}}}`)}
	w := newWriter(t, s, func(context.Context) (domain.Capabilities, error) {
		return domain.Capabilities{Models: []string{"EPYC"}}, nil
	})
	w.step(t.Context())
	s.expect(review, getNode)
}

// TestStranger: the credential is no node's.
func TestStranger(t *testing.T) {
	s := &server{t: t, user: "admin", node: []byte(`{"metadata": {}}`)}
	w := newWriter(t, s, func(context.Context) (domain.Capabilities, error) { return domain.Capabilities{}, nil })
	w.step(t.Context())
	s.expect(review)
	if !w.failed {
		t.Error("it labelled a node")
	}
}

// TestOff: without a kubeconfig nothing is asked.
func TestOff(t *testing.T) {
	New("", func(context.Context) (domain.Capabilities, error) {
		t.Error("libvirt was asked")
		return domain.Capabilities{}, nil
	}, slog.New(slog.DiscardHandler)).Run(t.Context())
}
