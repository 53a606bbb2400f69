package subresources

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// object is a part of an OpenAPI document.
type object = map[string]any

// Paths returns the OpenAPI (version 2) description of all that the API serves, by path.
// The API server adds it to its own.
func (s *Server) Paths() map[string]any {
	all := map[string]any{}
	for _, version := range Versions {
		base := "/apis/" + Group + "/" + version + "/"
		inNamespace := base + "namespaces/{namespace}/"
		add := func(path, method, of string) {
			item, known := all[path].(object)
			if !known {
				item = object{"parameters": parameters(path)}
				all[path] = item
			}
			item[strings.ToLower(method)] = operation(method, version, of)
		}
		refused := unsupported()
		for _, r := range s.table() {
			subresource, _, _ := strings.Cut(r.subresource, "/{")
			if _, always := refused[subresource]; !always {
				add(inNamespace+r.resource+"/{name}/"+r.subresource, r.method, r.resource+"/"+r.subresource)
			}
		}
		add(inNamespace+"expand-vm-spec", http.MethodPut, "expand-vm-spec")
		for _, name := range []string{"guestfs", "healthz", "version"} {
			add(base+name, http.MethodGet, name)
		}
	}
	return all
}

var placeholder = regexp.MustCompile(`\{([a-z]+)\}`)

func parameters(path string) []any {
	all := []any{}
	for _, match := range placeholder.FindAllStringSubmatch(path, -1) {
		all = append(all, object{"name": match[1], "in": "path", "required": true, "type": "string", "uniqueItems": true})
	}
	return all
}

// operation describes a call. Its ID, which no other in the API server may have, names
// method, version and path.
func operation(method, version, of string) object {
	words := strings.FieldsFunc(of, func(r rune) bool { return strings.ContainsRune("/-{}", r) })
	id := strings.Join(slices.Concat([]string{strings.ToLower(method), "Subresources", version}, words), "_")
	return object{
		"description": method + " " + of + ", as in KubeVirt's API.",
		"operationId": id,
		"tags":        []any{"subresourcesKubevirtIo_" + version},
		"consumes":    []any{"*/*"},
		"produces":    []any{"application/json"},
		"responses": object{
			"200": object{"description": "OK"}, "202": object{"description": "Accepted"}, "401": object{"description": "Unauthorized"},
		},
	}
}
