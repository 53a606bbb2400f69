package subresources

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"

	"github.com/nodevirt/nodevirt/controller/api"
)

// newServer returns an API to which the front proxy names no user.
func newServer(t *testing.T) *Server {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{
		Caller: func(*http.Request) (user.Info, error) { return nil, errors.New("no user") },
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
	h := newServer(t).Handler()
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
	var version struct{ GitVersion string }
	if code := ask(t, h, http.MethodGet, "/apis/subresources.kubevirt.io/v1/version", &version); code != http.StatusOK || version.GitVersion != virtctlVersion+"+nodevirt.v0.0.1" {
		t.Errorf("the version is %+v, status %d", version, code)
	}
}

func TestStrangersAreNobody(t *testing.T) {
	h := newServer(t).Handler()
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

// TestGuestfs names the image that the cluster's administrator chose.
func TestGuestfs(t *testing.T) {
	s := newServer(t)
	s.GuestfsImage = "registry.example.com/libguestfs-tools:1"
	for _, version := range Versions {
		var got map[string]string
		code := ask(t, s.Handler(), http.MethodGet, "/apis/subresources.kubevirt.io/"+version+"/guestfs", &got)
		want := map[string]string{"gsImage": s.GuestfsImage, "registry": "", "tag": "", "digest": "", "imagePrefix": ""}
		if diff := cmp.Diff(want, got); code != http.StatusOK || diff != "" {
			t.Errorf("status %d (-want +got):\n%s", code, diff)
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
