package proxy

import (
	"net/url"
	"path"
	"strings"
	"testing"
)

// FuzzParse: a route has the path that its server gets, which leads to no other place there.
func FuzzParse(f *testing.F) {
	const export = root + "v1/namespaces/team/virtualmachineexports/out"
	for _, rest := range []string{"/volumes/a/dir/", "/volumes//a", "/..", "/%2e%2e/x", "/a%2fb", "/a%20b/%ff", "/", ""} {
		f.Add(export + rest)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.ParseRequestURI(raw)
		if err != nil {
			return
		}
		r, err := parse(u)
		if err != nil {
			return
		}
		if clean := path.Clean(r.rest); clean != r.rest && clean+"/" != r.rest || !strings.HasPrefix(r.rest, "/") {
			t.Errorf("%q leads to %q, which is %q", raw, r.rest, clean)
		}
		if !strings.HasPrefix(r.prefix, root) || strings.Contains(r.namespace+r.name, "/") {
			t.Errorf("%q: %+v", raw, r)
		}
		sent := url.URL{Scheme: "https", Host: "x", Path: r.rest}
		if got, err := url.ParseRequestURI(sent.RequestURI()); err != nil || got.Path != r.rest {
			t.Errorf("%q is sent as %q", raw, sent.RequestURI())
		}
	})
}
