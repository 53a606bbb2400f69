package subresources

import (
	"cmp"
	"context"
	"maps"
	"runtime"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
)

func apiGroups(_ context.Context, c *call) error {
	return c.reply(metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{group()},
	})
}

func apiGroup(_ context.Context, c *call) error { return c.reply(group()) }

func group() metav1.APIGroup {
	g := metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: Group}
	for _, version := range Versions {
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: Group + "/" + version, Version: version})
	}
	g.PreferredVersion = g.Versions[0]
	return g
}

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

// kubevirtVersion is the version of KubeVirt whose API this is: clients compare it with their own.
const kubevirtVersion = "v1.6.0"

// version has ours as build metadata of KubeVirt's (semver.org, 10).
func (s *Server) version(_ context.Context, c *call) error {
	ours := strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '.' || r == '-') {
			return r
		}
		return '-'
	}, s.Version)
	return c.reply(apimachineryversion.Info{
		GitVersion: kubevirtVersion + "+nodevirt." + ours, GoVersion: runtime.Version(), Compiler: runtime.Compiler,
		Platform: runtime.GOOS + "/" + runtime.GOARCH,
	})
}

// healthz reports that the API server, which every other call needs, can be reached.
func (s *Server) healthz(_ context.Context, c *call) error {
	found, err := s.cluster.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	return c.reply(map[string]any{"apiserver": map[string]string{"connectivity": "ok", "version": found.GitVersion}})
}
