package subresources

import (
	"cmp"
	"context"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
)

// resources lists what a version offers, without the subresources that are always refused.
func (s *Server) resources(version string) handler {
	seen, refused := map[string]metav1.APIResource{}, unsupported()
	for _, r := range s.table() {
		subresource, _, _ := strings.Cut(r.subresource, "/{")
		if _, all := refused[subresource]; all {
			continue
		}
		name := r.resource + "/" + subresource
		seen[name] = metav1.APIResource{Name: name, Namespaced: true, Verbs: metav1.Verbs{verbs[r.method]}}
	}
	seen["expand-vm-spec"] = metav1.APIResource{Name: "expand-vm-spec", Namespaced: true, Verbs: metav1.Verbs{"update"}}
	list := metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: Group + "/" + version,
		APIResources: slices.SortedFunc(maps.Values(seen), func(a, b metav1.APIResource) int { return cmp.Compare(a.Name, b.Name) }),
	}
	return func(_ context.Context, c *call) error { return c.reply(list) }
}

// virtctlVersion is that of the virtctl with which each command is tested. Another one warns of the difference
// at each command.
const virtctlVersion = "v1.6.0"

// version has ours as build metadata of KubeVirt's (semver.org, 10).
func (s *Server) version(_ context.Context, c *call) error {
	ours := strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '.' || r == '-') {
			return r
		}
		return '-'
	}, s.Version)
	return c.reply(apimachineryversion.Info{
		GitVersion: virtctlVersion + "+nodevirt." + ours, GoVersion: runtime.Version(), Compiler: runtime.Compiler,
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	})
}

// healthTime is how long an answer of the API server to a health check is reused.
const healthTime = 5 * time.Second

// health is the API server's last answer to a health check.
type health struct {
	mu      sync.Mutex
	at      time.Time
	version string
	err     error
}

// healthz reports that the API server, which every other call needs, can be reached.
func (s *Server) healthz(_ context.Context, c *call) error {
	version, err := s.health.check(s.cluster.Discovery())
	if err != nil {
		return err
	}
	return c.reply(map[string]any{"apiserver": map[string]string{"connectivity": "ok", "version": version}})
}

func (h *health) check(from discovery.ServerVersionInterface) (version string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.at) < healthTime {
		return h.version, h.err
	}
	found, err := from.ServerVersion()
	h.at, h.version, h.err = time.Now(), "", err
	if err == nil {
		h.version = found.GitVersion
	}
	return h.version, h.err
}
