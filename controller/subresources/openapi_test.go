package subresources

import (
	"os"
	"strings"
	"testing"
)

// TestOpenAPI: each subresource that discovery lists is described in each version, with
// a separate ID and every placeholder of its path.
func TestOpenAPI(t *testing.T) {
	paths := newServer(t).Paths()
	ids := map[any]string{}
	described := map[string]bool{}
	for path, item := range paths {
		parameters, _ := item.(object)["parameters"].([]any)
		if want := strings.Count(path, "{"); len(parameters) != want {
			t.Errorf("%s has %d parameters, want %d", path, len(parameters), want)
		}
		for _, method := range []string{"get", "put"} {
			o, ok := item.(object)[method].(object)
			if !ok {
				continue
			}
			id := o["operationId"]
			if ids[id] != "" || id == "" {
				t.Errorf("%s and %s have the ID %s", path, ids[id], id)
			}
			ids[id] = path
			name, _, _ := strings.Cut(path, "/{port}")
			described[map[string]string{"get": "get ", "put": "update "}[method]+name] = true
		}
	}
	list, err := os.ReadFile("testdata/resources.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		verb, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		name = strings.Replace(name, "/", "/{name}/", 1)
		for _, version := range Versions {
			if key := verb + " /apis/" + Group + "/" + version + "/namespaces/{namespace}/" + name; !described[key] {
				t.Errorf("not described: %s", key)
			}
		}
	}
}
