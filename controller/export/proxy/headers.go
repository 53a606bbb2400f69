package proxy

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/nodevirt/nodevirt/controller/export/server"
)

// asked returns the headers of requests that an export's server needs. Others, such as cookies, may be
// secrets of the host for which the proxy answers.
func asked() []string {
	return []string{
		server.ExportHeader, "Accept", "Accept-Encoding", "If-Match", "If-Modified-Since", "If-None-Match", "If-Range",
		"If-Unmodified-Since", "Range",
	}
}

// answered returns the headers of answers that clients need. Others, such as cookies, would be valid for
// the whole host.
func answered() []string {
	return []string{
		"Accept-Ranges", "Content-Encoding", "Content-Length", "Content-Range", "Content-Type", "Etag", "Last-Modified", "Retry-After",
	}
}

// keep adds headers of some names.
func keep(to, from http.Header, names []string) {
	for _, name := range names {
		if values := from.Values(name); len(values) > 0 {
			to[http.CanonicalHeaderKey(name)] = values
		}
	}
}

// harden adds the headers of an answer that clients need. A guest wrote the content: a browser must not
// run it.
func harden(to, from http.Header, r route) {
	keep(to, from, answered())
	to.Set("X-Content-Type-Options", "nosniff")
	to.Set("Content-Security-Policy", "sandbox")
	if at, ok := moved(from.Get("Location"), r); ok {
		to.Set("Location", at)
	}
}

// moved returns where a client finds what an export's server says is at another place of this server.
func moved(to string, r route) (string, bool) {
	u, err := url.Parse(to)
	switch {
	case err != nil || to == "" || u.IsAbs() || u.Host != "" || u.Opaque != "" || strings.Contains(to, `\`):
		return "", false
	case strings.HasPrefix(u.Path, "/"):
		return r.prefix + to, true
	}
	return to, true
}
