package replicas_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/nodevirt/nodevirt/controller/replicas"
)

// TestCreate: what is refused is asked for a few times only.
func TestCreate(t *testing.T) {
	names := make([]int, 100)
	for i := range names {
		names[i] = i
	}
	n, err := replicas.Create(names, func(int) error { return nil })
	if n != 100 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	var asked atomic.Int64
	refused := errors.New("exceeded quota")
	n, err = replicas.Create(names, func(i int) error {
		asked.Add(1)
		if i > 2 {
			return refused
		}
		return nil
	})
	if n != 3 || !errors.Is(err, refused) || asked.Load() != 7 { // 1 + 2 + 4
		t.Errorf("%d of %d, %v", n, asked.Load(), err)
	}
}

func TestSelector(t *testing.T) {
	web := map[string]string{"app": "web"}
	for want, s := range map[string]*metav1.LabelSelector{
		"app=web":                 {MatchLabels: web},
		"spec.selector: required": nil,
		"spec.selector: does not match the labels of spec.template.metadata.labels": {MatchLabels: map[string]string{"app": "db"}},
		`"Among" is not a valid label selector operator`:                            {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Among"}}},
	} {
		got, err := replicas.Selector(s, "template", web)
		if text := strings.TrimSuffix(fmt.Sprint(got, err), "<nil>"); !strings.Contains(text, want) {
			t.Errorf("%s, want %s", text, want)
		}
	}
}

func TestWanted(t *testing.T) {
	if a, b := replicas.Wanted(nil), replicas.Wanted(new(int32(0))); a != 1 || b != 0 {
		t.Errorf("%d, %d", a, b)
	}
}

func TestExists(t *testing.T) {
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1", Finalizers: []string{"example.com/x"}}}
	live := fake.NewClientBuilder().WithObjects(owner).Build()
	exists := func(o *corev1.ConfigMap, want bool) {
		t.Helper()
		if got, err := replicas.Exists(t.Context(), live, o); got != want || err != nil {
			t.Errorf("%t, %v", got, err)
		}
	}
	exists(owner, true)
	changed := owner.DeepCopy()
	changed.Generation++
	exists(changed, true)
	for o, want := range map[*corev1.ConfigMap]bool{owner: true, changed: false} {
		if got, err := replicas.Unchanged(t.Context(), live, o); got != want || err != nil {
			t.Errorf("generation %d is unchanged: %t, %v", o.Generation, got, err)
		}
	}
	other := owner.DeepCopy()
	other.UID = "2"
	exists(other, false)
	other.Name = "gone"
	exists(other, false)
	if err := live.Delete(t.Context(), owner.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	exists(owner, false)
}
