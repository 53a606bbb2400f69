package admission_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/controller/kinds"
	"github.com/nodevirt/nodevirt/internal/bounds"
)

const sharedVMI = `{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "a", "labels": {"app": "a"}},
	"spec": {"domain": {"devices": {}, "memory": {"guest": "64Mi"}}}}`

// preset returns one that selects an instance, with a number of bytes and of elements of lists.
func preset(n, bytes, elements int) unstructured.Unstructured {
	values := []any{"a"}
	for i := range elements {
		values = append(values, strconv.Itoa(i))
	}
	return unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": fmt.Sprintf("preset-%03d", n)},
		"spec": map[string]any{
			"selector": map[string]any{"matchExpressions": []any{map[string]any{"key": "app", "operator": "In", "values": values}}},
			"domain":   map[string]any{"firmware": map[string]any{"serial": "x"}},
			"notes":    strings.Repeat("x", bytes),
		},
	}}
}

// TestPresetsAreBounded: more presets than admission compares refuse the namespace's instances, and are not all read.
func TestPresetsAreBounded(t *testing.T) {
	for name, row := range map[string]struct{ number, bytes, elements int }{
		"number": {admission.MaxPresets + 1, 1, 1}, "bytes": {10, admission.MaxPresetBytes / 9, 1}, "elements": {10, 1, bounds.Elements / 9},
	} {
		t.Run(name, func(t *testing.T) {
			var all []unstructured.Unstructured
			for n := range row.number {
				all = append(all, preset(n, row.bytes, row.elements))
			}
			answer := newRig(t, all...).ask(t, admission.PathDefault, []byte(sharedVMI), nil)
			if answer.Allowed || !strings.Contains(answer.Result.Message, "delete some, or use instance types") {
				t.Errorf("answer %+v", answer.Result)
			}
			if answer := newRig(t, all[:5]...).ask(t, admission.PathDefault, []byte(sharedVMI), nil); !answer.Allowed {
				t.Errorf("five presets: %s", answer.Result.Message)
			}
		})
	}
}

// endless is an API server whose lists have no end.
type endless struct{ client.Reader }

func (endless) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return nil
}

func (endless) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.SetContinue("more")
	return nil
}

// TestOthersAreBounded: a namespace with more restores or migrations than a review reads gets no further one.
func TestOthersAreBounded(t *testing.T) {
	r := newRigIn(t, admission.Webhooks{Live: endless{}})
	for _, object := range []string{
		`{"apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineRestore", "metadata": {"name": "a", "namespace": "ns"},
			"spec": {"target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "a"}, "virtualMachineSnapshotName": "s"}}`,
		`{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration", "metadata": {"name": "a", "namespace": "ns"}, "spec": {"vmiName": "a"}}`,
	} {
		answer := r.ask(t, admission.PathValidate, []byte(object), nil)
		if answer.Allowed || !strings.Contains(answer.Result.Message, fmt.Sprintf("more than %d: delete those that have ended", bounds.Others)) {
			t.Errorf("%s: %+v", object, answer.Result)
		}
	}
}

// largeVM returns a VM with an annotation of a number of bytes.
func largeVM(name string, bytes int, labels map[string]string) *kubevirt.VirtualMachine {
	running := kubevirt.RunStrategyHalted
	vm := &kubevirt.VirtualMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{"example.com/notes": strings.Repeat("x", bytes)}},
	}
	vm.Spec.RunStrategy = &running
	vm.Spec.Template = &kubevirt.VirtualMachineInstanceTemplateSpec{}
	guest := resource.MustParse("64Mi")
	vm.Spec.Template.Spec.Domain.Memory = &kubevirt.Memory{Guest: &guest}
	return vm
}

// largeVMI returns a VMI with an annotation of a number of bytes.
func largeVMI(name string, bytes int, owner *metav1.OwnerReference) *kubevirt.VirtualMachineInstance {
	vm := largeVM(name, bytes, nil)
	vmi := &kubevirt.VirtualMachineInstance{
		TypeMeta: metav1.TypeMeta{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance"}, ObjectMeta: vm.ObjectMeta, Spec: vm.Spec.Template.Spec,
	}
	if owner != nil {
		vmi.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return vmi
}

func asJSON(t *testing.T, object any) []byte {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestRoomOfKinds: the objects of a kind of a namespace share what the controller holds of them in memory. Small ones are always
// admitted, those that exist may stay as they are and grow a little, and another namespace has its whole share. The controller
// has a larger one, and its updates and the instances of VMs fit always.
func TestRoomOfKinds(t *testing.T) {
	const few = bounds.KindBytes / (64 << 10)
	const own = "system:serviceaccount:vms:nodevirt-controller"
	scheme := runtime.NewScheme()
	for _, k := range kinds.All() {
		scheme.AddKnownTypes(k.Version, k.Object(), k.List())
	}
	b := fake.NewClientBuilder().WithScheme(scheme)
	for i := range few {
		vm := largeVM(fmt.Sprint("vm-", i), 0, nil)
		vm.Namespace = "greedy"
		b = b.WithObjects(vm)
	}
	for i := range few {
		vmi := largeVMI(fmt.Sprint("vmi-", i), 0, nil)
		vmi.Namespace = "greedy"
		b = b.WithObjects(vmi)
	}
	r := newRigIn(t, admission.Webhooks{Live: b.Build(), Controller: admission.Controller("vms")})
	in := func(namespace string, bytes int) *kubevirt.VirtualMachine {
		vm := largeVM("one", bytes, nil)
		vm.Namespace = namespace
		return vm
	}
	applied := in("greedy", 0)
	applied.Annotations["kubectl.kubernetes.io/last-applied-configuration"] = strings.Repeat("x", 64<<10)
	reported := in("greedy", 0)
	reported.Status.PrintableStatus = kubevirt.VirtualMachinePrintableStatus(strings.Repeat("x", 64<<10))
	const refusal = "among 65 objects of kind VirtualMachine in the namespace, this one may have 63 KiB, and has 65 KiB; move large values"
	vmi := func(owner string) client.Object {
		vmi := largeVMI("one", 400<<10, &metav1.OwnerReference{APIVersion: "kubevirt.io/v1", Kind: owner, Name: "one", UID: "1", Controller: new(true)})
		vmi.Namespace = "greedy"
		return vmi
	}
	const large = "among 64 objects of kind VirtualMachine in the namespace, this one may have 256 KiB"
	for what, row := range map[string]struct {
		object, old   client.Object
		user, refusal string
	}{
		"one that has room":             {object: in("greedy", 60<<10)},
		"one that has no room":          {object: in("greedy", 64<<10), refusal: refusal},
		"a small one":                   {object: in("greedy", 31<<10)},
		"one of another namespace":      {object: in("neighbour", 400<<10)},
		"one that grows":                {object: in("greedy", 69<<10), old: in("greedy", 64<<10), refusal: "among 64 objects"},
		"one that grows a little":       {object: in("greedy", 67<<10), old: in("greedy", 64<<10)},
		"one that has grown a lot":      {object: in("greedy", 257<<10), old: in("greedy", 256<<10), refusal: large},
		"one that shrinks":              {object: in("greedy", 65<<10), old: in("greedy", 66<<10)},
		"what the cache drops":          {object: applied},
		"what the controller reports":   {object: reported},
		"one of the controller":         {object: in("greedy", 200<<10), user: own},
		"a large one of the controller": {object: in("greedy", 300<<10), user: own, refusal: "this one may have 252 KiB"},
		"one of another's controller":   {object: in("greedy", 200<<10), user: "system:serviceaccount:greedy:nodevirt-controller", refusal: "may have 63 KiB"},
		"one that the controller grows": {object: in("greedy", 400<<10), old: in("greedy", 300<<10), user: own},
		"the instance of a VM":          {object: vmi("VirtualMachine"), user: own},
		"an instance of many":           {object: vmi("VirtualMachineInstanceReplicaSet"), user: own, refusal: "this one may have 252 KiB"},
		"an instance that looks so":     {object: vmi("VirtualMachine"), refusal: "this one may have 63 KiB"},
	} {
		var old []byte
		if row.old != nil {
			old = asJSON(t, row.old)
		}
		r.user = row.user
		answer := r.ask(t, admission.PathValidate, asJSON(t, row.object), old)
		if answer.Allowed != (row.refusal == "") || row.refusal != "" && !strings.Contains(answer.Result.Message, row.refusal) {
			t.Errorf("%s: %+v", what, answer.Result)
		}
	}
}

// TestController: the controller has the user that the policies take for it.
func TestController(t *testing.T) {
	policies, err := os.ReadFile("../../deploy/kubernetes/policies.yaml")
	if own := admission.Controller("nodevirt"); err != nil || !strings.Contains(string(policies), strconv.Quote(own)) {
		t.Errorf("no policy names %s, %v", own, err)
	}
}

// TestUncounted: without the number of objects a large one is refused, and the error says why.
func TestUncounted(t *testing.T) {
	answer := newRigIn(t, admission.Webhooks{Live: endless{}}).ask(t, admission.PathValidate, asJSON(t, largeVM("one", 64<<10, nil)), nil)
	if answer.Allowed || !strings.Contains(answer.Result.Message, "does not say how many follow") {
		t.Errorf("answer %+v", answer.Result)
	}
}

// review has the first webhook decide on a VMI, which it must admit.
func review(url, namespace string, object []byte) error {
	text, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID:       "1",
			Kind:      metav1.GroupVersionKind{Group: kubevirt.GroupVersion.Group, Version: "v1", Kind: "VirtualMachineInstance"},
			Namespace: namespace, Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: object},
		},
	})
	if err != nil {
		return err
	}
	answer, err := http.Post(url+admission.PathDefault, "application/json", bytes.NewReader(text))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var got admissionv1.AdmissionReview
	if err := json.NewDecoder(answer.Body).Decode(&got); err != nil || got.Response == nil || !got.Response.Allowed {
		return fmt.Errorf("%+v, %w", got.Response, err)
	}
	return nil
}

// TestLongReviewsLeaveAProcessor: reviews of large objects, and of those that are compared with many presets, run on all
// processors but one. Short ones of other namespaces do not wait for them.
func TestLongReviewsLeaveAProcessor(t *testing.T) {
	defer goruntime.GOMAXPROCS(goruntime.GOMAXPROCS(2))
	large := strings.Replace(sharedVMI, `"labels"`, `"annotations": {"example.com/notes": "`+strings.Repeat("x", bounds.LongReview)+`"}, "labels"`, 1)
	for name, row := range map[string]struct {
		object string
		pages  int
	}{"large objects": {large, 1}, "many presets": {sharedVMI, 2}} {
		t.Run(name, func(t *testing.T) {
			release, begun := make(chan struct{}), make(chan struct{}, 100)
			web := httptest.NewServer(admission.Webhooks{
				Kinds: kinds.Rules(),
				Presets: func(ctx context.Context, namespace string, look func([]unstructured.Unstructured) error) error {
					if namespace != "greedy" {
						return nil
					}
					for range row.pages {
						if err := look([]unstructured.Unstructured{preset(1, 1, 1)}); err != nil {
							return err
						}
					}
					begun <- struct{}{}
					select {
					case <-release:
					case <-ctx.Done():
					}
					return nil
				},
			}.Handler(named))
			defer web.Close()
			const many = 20
			ended := make(chan error, many)
			for range many {
				go func() { ended <- review(web.URL, "greedy", []byte(row.object)) }()
			}
			<-begun
			for range 20 {
				if err := review(web.URL, "neighbour", []byte(sharedVMI)); err != nil {
					t.Errorf("another namespace's review: %v", err)
				}
			}
			if n := len(begun); n > 0 {
				t.Errorf("%d more long reviews run", n)
			}
			close(release)
			for range many {
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestReviewsAreShared: reviews of one namespace that take long keep no other namespace's waiting.
func TestReviewsAreShared(t *testing.T) {
	release, begun := make(chan struct{}), make(chan struct{}, 100)
	web := httptest.NewServer(admission.Webhooks{
		Kinds: kinds.Rules(),
		Presets: func(ctx context.Context, namespace string, _ func([]unstructured.Unstructured) error) error {
			if namespace != "greedy" {
				return nil
			}
			begun <- struct{}{}
			select {
			case <-release:
			case <-ctx.Done():
			}
			return nil
		},
	}.Handler(named))
	defer web.Close()
	review := func(namespace string) error { return review(web.URL, namespace, []byte(sharedVMI)) }
	const many = 20
	ended := make(chan error, many)
	for range many {
		go func() { ended <- review("greedy") }()
	}
	for range admission.NamespaceReviews {
		<-begun
	}
	if err := review("neighbour"); err != nil {
		t.Errorf("another namespace's review: %v", err)
	}
	if n := len(begun); n > 0 {
		t.Errorf("%d more reviews of the one namespace run", n)
	}
	close(release)
	for range many {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestElementsAreBounded: an object whose lists have very many elements is refused before they are decoded, and one that has as
// many as allowed gets its own problems.
func TestElementsAreBounded(t *testing.T) {
	r := newRig(t)
	vm := func(n int) []byte {
		return fmt.Appendf(nil, `{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","metadata":{"name":"a","namespace":"b"},`+
			`"spec":{"runStrategy":"Halted","dataVolumeTemplates":[0%s],"template":{"spec":{"domain":{"devices":{}}}}}}`, strings.Repeat(",0", n-1))
	}
	for _, path := range []string{admission.PathDefault, admission.PathValidate} {
		if answer := r.ask(t, path, vm(bounds.Elements+1), nil); answer.Allowed || !strings.Contains(answer.Result.Message, "have 8193 elements together") {
			t.Errorf("%s: %+v", path, answer.Result)
		}
		if answer := r.ask(t, path, vm(bounds.Elements), nil); answer.Allowed || strings.Contains(answer.Result.Message, "elements together") {
			t.Errorf("%s: %+v", path, answer.Result)
		}
		// Wherever they are: a VirtualMachineSnapshotContent has a VM in its spec.
		for _, k := range kinds.All() {
			object := fmt.Appendf(nil, `{"apiVersion":"%s","kind":"%s","metadata":{"name":"a","namespace":"b"},"spec":{"source":{"virtualMachine":{"spec":{"a":[0%s]}}}}}`,
				k.Version, k.Name(), strings.Repeat(",0", bounds.Elements))
			if answer := r.ask(t, path, object, nil); answer.Allowed || !strings.Contains(answer.Result.Message, "have 8193 elements together") {
				t.Errorf("%s: %s: %+v", path, k.Name(), answer.Result)
			}
		}
	}
}
