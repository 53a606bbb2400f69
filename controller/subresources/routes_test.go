package subresources

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/nodevirt/nodevirt/controller/api"
)

// newServer is one to whom nobody has told who the front proxy is.
func newServer(t *testing.T) *Server {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{
		Config: &rest.Config{Host: "127.0.0.1:1"}, Scheme: scheme, Version: "v0.0.1", Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Each call asks what its caller may: many at once must not wait in the controller.
func TestNoLimitOfOurOwn(t *testing.T) {
	if limit := newServer(t).cluster.AuthorizationV1().RESTClient().GetRateLimiter(); limit != nil {
		t.Errorf("SubjectAccessReviews are held back to %v a second", limit.QPS())
	}
}

// A controller that comes up before the API server waits for that.
func TestServesOnceThereIsAnAPIServer(t *testing.T) {
	s := newServer(t)
	told := make(lines, 1)
	s.Log = slog.New(slog.NewTextHandler(told, nil))
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	select {
	case line := <-told:
		if !strings.Contains(line, "extension-apiserver-authentication") {
			t.Errorf("told: %s", line)
		}
	case err := <-ended:
		t.Fatalf("ended: %v", err)
	}
	if s.Ready(nil) == nil {
		t.Error("it is ready")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("stopped: %v", err)
	}
}

// lines are those of a log, of which what nobody waits for is lost.
type lines chan string

func (l lines) Write(text []byte) (int, error) {
	select {
	case l <- string(text):
	default:
	}
	return len(text), nil
}

func ask(t *testing.T, h http.Handler, method, path string, into any) int {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	text, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatalf("%s %s: %v in %q", method, path, err, text)
	}
	return w.Code
}

func TestDiscovery(t *testing.T) {
	h := newServer(t).routes()
	for _, version := range Versions {
		var list metav1.APIResourceList
		if code := ask(t, h, http.MethodGet, "/apis/subresources.kubevirt.io/"+version, &list); code != http.StatusOK {
			t.Fatalf("%s: status %d", version, code)
		}
		var lines []string
		for _, r := range list.APIResources {
			lines = append(lines, strings.Join(append(r.Verbs, r.Name), " "))
		}
		want, err := os.ReadFile("testdata/resources.txt")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.Split(strings.TrimSpace(string(want)), "\n"), lines); diff != "" {
			t.Errorf("%s offers (-want +got):\n%s", list.GroupVersion, diff)
		}
	}
	var group metav1.APIGroup
	if code := ask(t, h, http.MethodGet, "/apis/subresources.kubevirt.io", &group); code != http.StatusOK || group.PreferredVersion.Version != "v1" {
		t.Errorf("the group is %+v, status %d", group, code)
	}
	var groups metav1.APIGroupList
	if code := ask(t, h, http.MethodGet, "/apis", &groups); code != http.StatusOK || len(groups.Groups) != 1 {
		t.Errorf("the groups are %+v, status %d", groups, code)
	}
	var version struct{ GitVersion string }
	if code := ask(t, h, http.MethodGet, "/apis/subresources.kubevirt.io/v1/version", &version); code != http.StatusOK || version.GitVersion != "v1.6.0+nodevirt.v0.0.1" {
		t.Errorf("the version is %+v, status %d", version, code)
	}
}

func TestStrangersAreNobody(t *testing.T) {
	h := newServer(t).routes()
	const base = "/apis/subresources.kubevirt.io/v1/namespaces/default/"
	for _, c := range []struct {
		method, path string
		code         int
	}{
		{http.MethodPut, base + "virtualmachines/a/start", http.StatusUnauthorized},
		{http.MethodGet, base + "virtualmachineinstances/a/console", http.StatusUnauthorized},
		{http.MethodGet, base + "virtualmachineinstances/a/portforward/22/tcp", http.StatusUnauthorized},
		{http.MethodPut, base + "virtualmachines/a/migrate", http.StatusUnauthorized},
		{http.MethodPut, base + "expand-vm-spec", http.StatusUnauthorized},
		{http.MethodGet, base + "virtualmachines/a/nothing", http.StatusNotFound},
		{http.MethodGet, base + "secrets/a/console", http.StatusNotFound},
		{http.MethodGet, "/apis/subresources.kubevirt.io/v2", http.StatusNotFound},
		{http.MethodGet, "/metrics", http.StatusNotFound},
		{http.MethodGet, "/apis/subresources.kubevirt.io/v1/guestfs", http.StatusNotImplemented},
	} {
		var status metav1.Status
		if code := ask(t, h, c.method, c.path, &status); code != c.code || status.Code != int32(c.code) || status.Kind != "Status" || status.Message == "" {
			t.Errorf("%s %s: status %d, %+v; want %d", c.method, c.path, code, status, c.code)
		}
	}
}

func TestAttributes(t *testing.T) {
	c := &call{
		Request: httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil),
		version: "v1", namespace: "n", resource: "virtualmachineinstances", name: "a", subresource: "portforward/22/tcp",
	}
	want := authorizationv1.ResourceAttributes{
		Namespace: "n", Verb: "get", Group: "subresources.kubevirt.io", Version: "v1",
		Resource: "virtualmachineinstances", Subresource: "portforward", Name: "a",
	}
	if diff := cmp.Diff(want, *c.attributes()); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
}
