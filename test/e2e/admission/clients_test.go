package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/nodevirt/nodevirt/controller/kinds"
	"github.com/nodevirt/nodevirt/test/wait"
)

// asTable is what clients with a list on a screen ask for.
const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"

// table asks the API server for a path as tables, one after the other if it watches.
func table(ctx context.Context, t *testing.T, path string) *json.Decoder {
	t.Helper()
	config := suite.server.Config()
	c, err := rest.HTTPClientFor(config)
	assert.NilError(t, err)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, config.Host+path, nil)
	assert.NilError(t, err)
	r.Header.Set("Accept", asTable)
	var body io.ReadCloser
	wait.Success(t, "a table of "+path, func(context.Context) error { // the API server may still read a new CRD
		reply, err := c.Do(r)
		if err != nil {
			return err
		}
		if reply.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(reply.Body)
			return errors.Join(fmt.Errorf("%s: %s", reply.Status, text), reply.Body.Close())
		}
		body = reply.Body
		return nil
	})
	t.Cleanup(func() { _ = body.Close() })
	return json.NewDecoder(body)
}

// resources returns the resources of a version by their names, subresources included.
func resources(t *testing.T, version string) map[string]metav1.APIResource {
	t.Helper()
	c, err := discovery.NewDiscoveryClientForConfig(suite.server.Config())
	assert.NilError(t, err)
	list, err := c.ServerResourcesForGroupVersion(version)
	assert.NilError(t, err)
	all := map[string]metav1.APIResource{}
	for _, r := range list.APIResources {
		all[r.Name] = r
	}
	return all
}

// TestLists: each kind has a table of its columns in each version, and a subresource for what the controller
// reports.
func TestLists(t *testing.T) {
	for _, k := range kinds.All() {
		name := reflect.TypeOf(k.Object()).Elem().Name()
		for _, version := range []string{k.Version.Version, k.Older} {
			if version == "" {
				continue
			}
			of := k.Version.Group + "/" + version
			all := resources(t, of)
			plural := ""
			for _, r := range all {
				if r.Kind == name && !strings.Contains(r.Name, "/") {
					plural = r.Name
				}
			}
			if _, ok := all[plural+"/status"]; ok != k.CRD.Status {
				t.Errorf("%s %s: subresource status: %t", of, plural, ok)
			}
			if _, ok := all[plural+"/scale"]; ok != (k.CRD.Scale != nil) {
				t.Errorf("%s %s: subresource scale: %t", of, plural, ok)
			}
			var got metav1.Table
			assert.NilError(t, table(t.Context(), t, "/apis/"+of+"/"+plural).Decode(&got))
			want := []string{"Name"}
			for _, c := range k.CRD.Columns {
				want = append(want, c.Name)
			}
			if len(k.CRD.Columns) == 0 {
				want = append(want, "Age")
			}
			var have []string
			for _, c := range got.ColumnDefinitions {
				have = append(have, c.Name)
			}
			assert.DeepEqual(t, have, want)
		}
	}
}

// TestWatchAsTable: a watch of VMs shows a new one, whose manifest has a status that is not the user's to write.
func TestWatchAsTable(t *testing.T) {
	c, err := newClient(suite.server.Config())
	assert.NilError(t, err)
	vm := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
		"metadata": map[string]any{"name": "watched", "namespace": "default"},
		"spec": map[string]any{"runStrategy": "Halted", "template": map[string]any{"spec": map[string]any{
			"domain": map[string]any{"memory": map[string]any{"guest": "96Mi"}, "devices": map[string]any{}},
		}}},
		"status": map[string]any{"printableStatus": "Forged", "ready": true},
	}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := table(ctx, t, "/apis/kubevirt.io/v1/namespaces/default/virtualmachines?watch=true&fieldSelector=metadata.name%3Dwatched")
	assert.NilError(t, c.Create(t.Context(), vm))
	t.Cleanup(func() {
		if err := c.Delete(context.WithoutCancel(t.Context()), vm); err != nil {
			t.Error(err)
		}
	})
	var cells []string
	for len(cells) < 3 || cells[2] != "Stopped" {
		var e struct {
			Type   string
			Object metav1.Table
		}
		assert.NilError(t, events.Decode(&e))
		if len(e.Object.Rows) != 1 {
			t.Fatalf("%s: %d rows", e.Type, len(e.Object.Rows))
		}
		cells = nil
		for _, c := range e.Object.Rows[0].Cells {
			cells = append(cells, fmt.Sprint(c))
		}
		if cells[0] != "watched" || cells[2] == "Forged" {
			t.Fatalf("%s: %q", e.Type, cells)
		}
	}
}
