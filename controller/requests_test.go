package controller_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

// requests are those that a controller has sent, "METHOD /path".
type requests struct {
	mu  sync.Mutex
	all []string
}

func (r *requests) count(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(q *http.Request) (*http.Response, error) {
		r.mu.Lock()
		r.all = append(r.all, q.Method+" "+q.URL.Path)
		r.mu.Unlock()
		return next.RoundTrip(q)
	})
}

// take returns the requests since the last time.
func (r *requests) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}

// with returns those that contain a text.
func with(all []string, text string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !strings.Contains(s, text) })
}

// about returns those that make something, or name the VM of a name or its pod: the controller also works at what earlier
// tests left.
func about(all []string, name string) []string {
	return slices.DeleteFunc(with(all, "/namespaces/"), func(request string) bool {
		return !strings.HasPrefix(request, http.MethodPost) &&
			!slices.ContainsFunc(strings.Split(request, "/"), func(element string) bool {
				return element == name || strings.HasPrefix(element, "virt-launcher-"+name+"-")
			})
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }

// TestMachineRequests: a VM that admission has completed takes seven requests until its pod is
// not scheduled: its instance, the revision of its spec, the pod, two events and two statuses.
func TestMachineRequests(t *testing.T) {
	w := newWorld(t)
	w.settles()
	strategy := kubevirt.RunStrategyAlways
	vm := &kubevirt.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{
			Name: "requests", Namespace: namespace, Finalizers: []string{kubevirt.VirtualMachineControllerFinalizer},
		},
		Spec: kubevirt.VirtualMachineSpec{
			RunStrategy: &strategy,
			Template:    &kubevirt.VirtualMachineInstanceTemplateSpec{Spec: newVMI("requests").Spec},
		},
	}
	vm.Spec.Template.Spec.Domain.Firmware = &kubevirt.Firmware{UUID: "5d307ca9-b3ef-428c-8861-06e72d69f223"}
	w.requests.take()
	if err := w.Create(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	w.phase("requests", kubevirt.Scheduling)
	time.Sleep(time.Second) // for more than these
	if all := about(w.requests.take(), "requests"); len(all) > 7 {
		t.Errorf("%d requests:\n%s", len(all), strings.Join(all, "\n"))
	}
	w.delete(vm)
}
