package datavolume

import (
	"context"
	"errors"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
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
