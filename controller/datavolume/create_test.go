package datavolume

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	kube "k8s.io/client-go/kubernetes/fake"
	clienttest "k8s.io/client-go/testing"
	cdi "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// newClient returns a client of a cluster with CDI and the DataSource default/golden of a PVC in another namespace. There
// the service account friend may copy.
func newClient(t *testing.T) *Client {
	t.Helper()
	source := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"source": map[string]any{
		"pvc": map[string]any{"namespace": "other", "name": "golden"},
	}}}}
	source.SetGroupVersionKind(version().WithKind(cdi.DataVolumeDataSource))
	source.SetNamespace("default")
	source.SetName("golden")
	empty := source.DeepCopy()
	empty.SetName("empty")
	empty.Object["spec"] = map[string]any{"source": map[string]any{}}
	cluster := kube.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	cluster.PrependReactor("create", "subjectaccessreviews", func(a clienttest.Action) (bool, runtime.Object, error) {
		review, _ := a.(clienttest.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		asked := review.Spec.ResourceAttributes
		review.Status.Allowed = review.Spec.User == "system:serviceaccount:default:friend" &&
			asked.Namespace == "other" && asked.Resource == "datavolumes" && asked.Subresource == "source"
		return true, review, nil
	})
	return &Client{
		dynamic: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
			version().WithResource("datavolumes"): "DataVolumeList", version().WithResource("datasources"): "DataSourceList",
		}, source, empty),
		cluster: cluster,
	}
}

// TestCreateAuthorizes: only service accounts that CDI's rules allow copy from another namespace, and a reference is
// replaced by what it names.
func TestCreateAuthorizes(t *testing.T) {
	pvc := func(namespace string) cdi.DataVolumeSpec {
		return cdi.DataVolumeSpec{Source: &cdi.DataVolumeSource{PVC: &cdi.DataVolumeSourcePVC{Namespace: namespace, Name: "golden"}}}
	}
	ref := func(name string) cdi.DataVolumeSpec {
		return cdi.DataVolumeSpec{SourceRef: &cdi.DataVolumeSourceRef{Kind: cdi.DataVolumeDataSource, Name: name}}
	}
	snapshot := cdi.DataVolumeSpec{Source: &cdi.DataVolumeSource{Snapshot: &cdi.DataVolumeSourceSnapshot{Namespace: "other", Name: "golden"}}}
	static := map[string]string{cdi.AnnCheckStaticVolume: "", cdi.AnnPrePopulated: "golden"}
	const denied = "has insufficient permissions in clone source namespace other: let the service account default/stranger create datavolumes/source there"
	for name, row := range map[string]struct {
		spec        cdi.DataVolumeSpec
		annotations map[string]string
		account     string
		want        string
	}{
		"of the namespace":        {spec: pvc("default"), account: "stranger"},
		"of no namespace":         {spec: pvc(""), account: "stranger"},
		"friend":                  {spec: pvc("other"), account: "friend"},
		"stranger":                {spec: pvc("other"), account: "stranger", want: denied},
		"stranger, static":        {spec: pvc("other"), annotations: static, account: "stranger", want: denied},
		"snapshot, friend":        {spec: snapshot, account: "friend"},
		"snapshot, stranger":      {spec: snapshot, account: "stranger", want: denied},
		"by reference, friend":    {spec: ref("golden"), account: "friend"},
		"by reference, stranger":  {spec: ref("golden"), account: "stranger", want: denied},
		"by reference to nothing": {spec: ref("nothing"), account: "friend", want: "read DataSource default/nothing"},
		"by reference, no source": {spec: ref("empty"), account: "friend", want: "DataSource default/empty has no PVC and no VolumeSnapshot yet"},
		"of a namespace without":  {spec: pvc("gone"), account: "friend", want: "may copy its source"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t)
			meta := metav1.ObjectMeta{Namespace: "default", Name: "data", Annotations: row.annotations}
			made, err := c.Create(t.Context(), meta, row.spec, row.account)
			s, _ := c.Get(context.WithoutCancel(t.Context()), "default", "data")
			if row.want != "" {
				if _, is := errors.AsType[*DeniedError](err); err == nil || !strings.Contains(err.Error(), row.want) || is != (row.want == denied) || s.Found {
					t.Errorf("%v, found %v; want %s", err, s.Found, row.want)
				}
				return
			}
			if err != nil || !s.Found || made.SourceRef != nil || made.Source == nil {
				t.Errorf("%+v, %v", made, err)
			}
		})
	}
}

// TestCreateFilledCopiesNothing: CDI signs no copy of another namespace's PVC for a restored template that names one,
// though the controller, as which it asks, may copy from everywhere.
func TestCreateFilledCopiesNothing(t *testing.T) {
	other, api := "other", "snapshot.storage.k8s.io"
	foreign := corev1.TypedObjectReference{APIGroup: &api, Kind: "VolumeSnapshot", Name: "golden", Namespace: &other}
	size := corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}}
	for name, template := range map[string]cdi.DataVolumeSpec{
		"PVC": {
			Source: &cdi.DataVolumeSource{PVC: &cdi.DataVolumeSourcePVC{Namespace: other, Name: "golden"}}, Storage: &cdi.StorageSpec{},
		},
		"VolumeSnapshot": {
			Source:  &cdi.DataVolumeSource{Snapshot: &cdi.DataVolumeSourceSnapshot{Namespace: other, Name: "golden"}},
			Storage: &cdi.StorageSpec{Resources: size},
		},
		"DataSource": {
			SourceRef: &cdi.DataVolumeSourceRef{Kind: cdi.DataVolumeDataSource, Name: "golden"}, PVC: &corev1.PersistentVolumeClaimSpec{},
		},
		"populator": {PVC: &corev1.PersistentVolumeClaimSpec{DataSourceRef: &foreign, Resources: size}},
		"archive": {
			Source:      &cdi.DataVolumeSource{HTTP: &cdi.DataVolumeSourceHTTP{URL: "http://files"}, PVC: nil},
			ContentType: cdi.DataVolumeArchive, Checkpoints: []cdi.DataVolumeCheckpoint{{Current: "a"}}, PVC: &corev1.PersistentVolumeClaimSpec{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t)
			meta := metav1.ObjectMeta{Namespace: "default", Name: "data", Annotations: map[string]string{
				"cdi.kubevirt.io/storage.clone.token": "forged", "restore.kubevirt.io/name": "back",
			}}
			if err := c.CreateFilled(t.Context(), meta, template, resource.MustParse("3Gi")); err != nil {
				t.Fatal(err)
			}
			object, err := c.in("default").Get(t.Context(), "data", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			made := new(cdi.DataVolume)
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, made); err != nil {
				t.Fatal(err)
			}
			if want := map[string]string{annotationFilled: "data", "restore.kubevirt.io/name": "back"}; !maps.Equal(made.Annotations, want) {
				t.Errorf("annotations %v, want %v", made.Annotations, want)
			}
			answer, err := made.AuthorizeUser("default", "data", &anything{reviews{t.Context(), c}}, authenticationv1.UserInfo{Username: "controller"})
			if !errors.Is(err, cdi.ErrNoTokenOkay) {
				t.Errorf("CDI signs a copy of %s/%s: %v", answer.Handler.SourceNamespace, answer.Handler.SourceName, err)
			}
			text, _ := json.Marshal(made.Spec)
			if made.Spec.Source == nil || made.Spec.Source.Blank == nil || strings.Contains(string(text), "golden") ||
				made.Spec.ContentType != "" || made.Spec.Checkpoints != nil {
				t.Errorf("spec %s", text)
			}
			want := "3Gi"
			if template.Storage != nil && len(template.Storage.Resources.Requests) > 0 || template.PVC != nil && len(template.PVC.Resources.Requests) > 0 {
				want = "2Gi"
			}
			if !strings.Contains(string(text), want) {
				t.Errorf("spec %s has not the size %s", text, want)
			}
		})
	}
}

// anything answers CDI's questions for a user who may do everything.
type anything struct{ reviews }

func (*anything) CreateSar(review *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
	review.Status.Allowed = true
	return review, nil
}
