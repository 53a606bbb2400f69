package proxy

import (
	"errors"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	api "kubevirt.io/api/export/v1"
)

// root begins the paths of all exports.
const root = "/api/export.kubevirt.io/"

// errPath says which paths there are.
var errPath = errors.New("the path must be " + root + "VERSION/namespaces/NAMESPACE/virtualmachineexports/NAME/PATH")

// errRest refuses paths that a server could take for those of other files.
var errRest = errors.New("the path has a part that is . or .., or an encoded slash")

// route is an export, and what a request asks of its server.
type route struct {
	namespace, name string
	// prefix is the path of the export at the proxy.
	prefix string
	// rest is the path at the export's server, decoded.
	rest string
}

// parse returns the route of a URL's path.
func parse(u *url.URL) (route, error) {
	const parts = 6
	all := strings.SplitN(strings.TrimPrefix(u.EscapedPath(), root), "/", parts)
	if !strings.HasPrefix(u.EscapedPath(), root) || len(all) != parts ||
		!slices.Contains([]string{"v1alpha1", "v1beta1", api.SchemeGroupVersion.Version}, all[0]) ||
		all[1] != "namespaces" || all[3] != "virtualmachineexports" {
		return route{}, errPath
	}
	// Names have no character that is encoded.
	if len(validation.IsDNS1123Label(all[2])) > 0 || len(validation.IsDNS1123Subdomain(all[4])) > 0 {
		return route{}, errPath
	}
	r := route{namespace: all[2], name: all[4], prefix: root + strings.Join(all[:parts-1], "/")}
	last := ""
	for part := range strings.SplitSeq(all[parts-1], "/") {
		last = part
		if part == "" { // two slashes are one
			continue
		}
		plain, err := url.PathUnescape(part)
		if err != nil || plain == "." || plain == ".." || strings.ContainsAny(plain, "/\x00") {
			return route{}, errRest
		}
		r.rest += "/" + plain
	}
	if r.rest == "" {
		return route{}, errPath
	}
	if last == "" { // a folder
		r.rest += "/"
	}
	return r, nil
}
