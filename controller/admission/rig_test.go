package admission_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/authentication/user"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/controller/config"
	"github.com/nodevirt/nodevirt/controller/kinds"
	manifests "github.com/nodevirt/nodevirt/controller/manifest"
)

// rig are the webhooks as an API server reaches them, but for TLS, and who asks it.
type rig struct{ url, user string }

func newRig(t testing.TB, presets ...unstructured.Unstructured) rig {
	t.Helper()
	return newRigIn(t, admission.Webhooks{}, presets...)
}

// gated is a cluster whose flags let instances have more.
func gated(g manifests.Gates) admission.Webhooks {
	return admission.Webhooks{Config: config.Source{Flags: config.Flags{Gates: g}}}
}

// newRigIn is newRig in a cluster with settings.
func newRigIn(t testing.TB, cluster admission.Webhooks, presets ...unstructured.Unstructured) rig {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds.All() {
		scheme.AddKnownTypes(k.Version, k.Object(), k.List())
	}
	web := httptest.NewServer(admission.Webhooks{
		Config: cluster.Config, Tracing: cluster.Tracing, Controller: cluster.Controller,
		Live: cmp.Or(cluster.Live, client.Reader(fake.NewClientBuilder().WithScheme(scheme).Build())),

		Kinds: kinds.Rules(),
		Presets: func(_ context.Context, _ string, look func([]unstructured.Unstructured) error) error {
			return look(presets)
		},
		Evictions: func(_ context.Context, pod types.NamespacedName, dryRun bool) (string, error) {
			return map[string]string{"held": fmt.Sprintf("no eviction, dry run %t", dryRun)}[pod.Name], nil
		},
		Uploads: cluster.Uploads,
	}.Handler(named))
	t.Cleanup(web.Close)
	return rig{url: web.URL}
}

// named is the front proxy's part: a request without a user is the API server's own.
func named(r *http.Request) (user.Info, error) {
	return &user.DefaultInfo{Name: cmp.Or(r.Header.Get("X-Remote-User"), user.APIServerUser)}, nil
}

// manifest reads one and returns it as JSON, a machine's in an API version of KubeVirt's.
func manifest(t testing.TB, text, version string) []byte {
	t.Helper()
	object, err := yaml.ToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(object, &tree); err != nil {
		t.Fatal(err)
	}
	if of, _ := tree["apiVersion"].(string); version != "" && strings.HasPrefix(of, "kubevirt.io/") {
		tree["apiVersion"] = "kubevirt.io/" + version
	}
	object, err = json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// ask sends an object to a webhook; old is nil for one that is created.
func (r rig) ask(t *testing.T, path string, object, old []byte) *admissionv1.AdmissionResponse {
	t.Helper()
	var meta metav1.PartialObjectMetadata
	if err := json.Unmarshal(object, &meta); err != nil {
		t.Fatal(err)
	}
	gvk := meta.GroupVersionKind()
	plural, _ := apimeta.UnsafeGuessKindToResource(gvk)
	request := &admissionv1.AdmissionRequest{
		UID:       "1",
		Kind:      metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind},
		Resource:  metav1.GroupVersionResource(plural),
		Name:      meta.Name,
		Namespace: meta.Namespace,
		Operation: admissionv1.Create,
		Object:    runtime.RawExtension{Raw: object},
	}
	request.UserInfo.Username = r.user
	if old != nil {
		request.Operation, request.OldObject = admissionv1.Update, runtime.RawExtension{Raw: old}
	}
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request,
	})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Post(r.url+path, "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(answer.Body).Decode(&review); err != nil || review.Response == nil {
		t.Fatalf("%s: %v: %+v", path, err, review)
	}
	return review.Response
}

// defaulted returns the object as the first webhook leaves it.
func (r rig) defaulted(t *testing.T, object, old []byte) []byte {
	t.Helper()
	answer := r.ask(t, admission.PathDefault, object, old)
	if !answer.Allowed {
		t.Fatalf("refused: %s", answer.Result.Message)
	}
	if len(answer.Patch) == 0 {
		return sorted(t, object)
	}
	patch, err := jsonpatch.DecodePatch(answer.Patch)
	if err != nil {
		t.Fatal(err)
	}
	patched, err := patch.Apply(object)
	if err != nil {
		t.Fatalf("%s: %v", answer.Patch, err)
	}
	return sorted(t, patched)
}

// sorted is the same JSON with its keys in order.
func sorted(t *testing.T, object []byte) []byte {
	t.Helper()
	var tree any
	if err := json.Unmarshal(object, &tree); err != nil {
		t.Fatal(err)
	}
	object, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// files returns the manifests of a folder, by their names.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[path] = string(text)
	}
	return all
}
