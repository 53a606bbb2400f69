//go:build attack

package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/test/attack"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestAttack: an editor of a namespace, and pods without any right, exceed bounds of the controller, and the API server
// admits the objects of another namespace in their normal time.
func TestAttack(t *testing.T) {
	c, err := newClient(suite.server.Config())
	assert.NilError(t, err)
	for _, name := range []string{"greedy", "neighbour"} {
		made(t, c, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}})
	}
	attack.Run(t, attack.Controller, neighbour(c), []attack.Attack{
		{
			Name: "large-reviews", Bounds: []string{"an object in admission", "reviews at a time", "long reviews at a time", "the controller's memory"},
			Begin: reviewMuch,
		},
		{Name: "presets", Bounds: []string{"presets of a namespace"}, Begin: comparePresets},
		{Name: "large-objects", Bounds: []string{"objects in the controller's memory"}, Begin: keepMuch},
		{Name: "labels", Bounds: []string{"labels, finalizers, owners of these objects"}, Begin: labelMuch},
		{Name: "handshakes", Bounds: []string{"handshakes with the controller"}, Begin: shakeHands},
	})
	if p := peak(t); p >= memoryLimit {
		t.Errorf("the controller took %d MiB, its limit is %d MiB", p>>20, memoryLimit>>20)
	}
}

// made creates an object, which goes when the test ends. The tenant's own reviews may still delay it.
func made(t *testing.T, c client.Client, object map[string]any) {
	t.Helper()
	o := &unstructured.Unstructured{Object: object}
	wait.Success(t, "the API server admits "+o.GetName(), func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(c.Create(ctx, o.DeepCopy()))
	})
	t.Cleanup(func() {
		if err := client.IgnoreNotFound(c.Delete(context.WithoutCancel(t.Context()), o)); err != nil {
			t.Error(err)
		}
	})
}

// vm returns a VirtualMachine of a namespace with an annotation of a number of bytes.
func vm(namespace, name string, size int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
		"metadata": map[string]any{
			"name": name, "namespace": namespace, "annotations": map[string]any{"example.com/notes": strings.Repeat("x", size)},
		},
		"spec": map[string]any{"runStrategy": "Halted", "template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"app": "a"}},
			"spec":     map[string]any{"domain": map[string]any{"devices": map[string]any{}, "memory": map[string]any{"guest": "64Mi"}}},
		}},
	}}
}

// neighbour returns what the other namespace does: it has a VM admitted.
func neighbour(c client.Client) attack.Round {
	return func(ctx context.Context, _ *testing.T, measure func(string, func() error)) {
		measure("admission", func() error { return c.Create(ctx, vm("neighbour", "small", 0), client.DryRunAll) })
	}
}

// reviewMuch sends reviews of the largest objects, as the API server does if an editor creates them.
func reviewMuch(ctx context.Context, t *testing.T) (end func() error) {
	front, err := tls.LoadX509KeyPair(filepath.Join(suite.dir, "front.crt"), filepath.Join(suite.dir, "front.key"))
	assert.NilError(t, err)
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		Certificates: []tls.Certificate{front}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12,
	}}}
	review, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "1", Kind: metav1.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachineInstance"},
			Namespace: "greedy", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: flood(bounds.Object - 1024)},
		},
	})
	assert.NilError(t, err)
	const clients = 20 * bounds.Reviews
	return attack.Gather(ctx, clients, func(ctx context.Context, _ int) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost,
			"https://"+suite.address+"/apis/admission.nodevirt.io/v1/default", bytes.NewReader(review))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("X-Remote-User", "system:apiserver")
		reply, err := web.Do(request)
		if err != nil {
			return err
		}
		defer reply.Body.Close()
		var answer admissionv1.AdmissionReview
		return json.NewDecoder(reply.Body).Decode(&answer)
	}).Waiting(t, clients)
}

// comparePresets has each VM of a namespace compared with as many presets as it may have, and then refused for one more.
func comparePresets(ctx context.Context, t *testing.T) (end func() error) {
	c, err := newClient(suite.server.Config())
	assert.NilError(t, err)
	for n := range bounds.Presets + 1 {
		made(t, c, map[string]any{
			"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstancePreset",
			"metadata": map[string]any{"name": fmt.Sprintf("preset-%03d", n), "namespace": "greedy"},
			"spec": map[string]any{
				"selector": map[string]any{"matchExpressions": []any{map[string]any{"key": "app", "operator": "In", "values": values()}}},
				"domain":   map[string]any{"firmware": map[string]any{"serial": "x"}},
			},
		})
	}
	return attack.Gather(ctx, 5*bounds.Reviews, func(ctx context.Context, _ int) error {
		return c.Create(ctx, vm("greedy", "compared", 0), client.DryRunAll)
	}).Refused(t)
}

// values are those of a selector of some KiB.
func values() []any {
	all := []any{"a"}
	for i := range 100 {
		all = append(all, fmt.Sprintf("%060d", i))
	}
	return all
}

// keepMuch creates large halted VMs until no more is admitted.
func keepMuch(ctx context.Context, t *testing.T) (end func() error) {
	c, err := newClient(suite.server.Config())
	assert.NilError(t, err)
	const size = 250 << 10
	n := 0
	for ; n < 2*bounds.KindBytes/size; n++ {
		if err = c.Create(ctx, vm("greedy", fmt.Sprint("large-", n), size)); err != nil {
			break
		}
		t.Cleanup(func() {
			if err := client.IgnoreNotFound(c.Delete(context.WithoutCancel(t.Context()), vm("greedy", fmt.Sprint("large-", n), 0))); err != nil {
				t.Error(err)
			}
		})
	}
	assert.ErrorContains(t, err, "move large values, such as cloud-init user data, to Secrets")
	assert.Equal(t, n, bounds.KindBytes/size, "large VMs of a namespace")
	return attack.Gather(ctx, 5*bounds.Reviews, func(ctx context.Context, n int) error {
		return c.Create(ctx, vm("greedy", fmt.Sprint("more-", n), size))
	}).Refused(t)
}

// labelMuch gives an object more labels than the controller keeps in memory.
func labelMuch(ctx context.Context, t *testing.T) (end func() error) {
	c, err := newClient(suite.server.Config())
	assert.NilError(t, err)
	made(t, c, vm("greedy", "labelled", 0).Object)
	labels := map[string]string{}
	for n := range bounds.Labels + 1 { // more would be an attack on the API server itself
		labels[fmt.Sprint("example.com/", n)] = "x"
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	assert.NilError(t, err)
	return attack.Gather(ctx, 5*bounds.Reviews, func(ctx context.Context, _ int) error {
		return c.Patch(ctx, vm("greedy", "labelled", 0), client.RawPatch("application/merge-patch+json", patch))
	}).Refused(t)
}

// shakeHands opens connections from four addresses, and leaves their handshakes half done.
func shakeHands(ctx context.Context, t *testing.T) (end func() error) {
	_, port, err := net.SplitHostPort(suite.address)
	assert.NilError(t, err)
	errClosed := errors.New("the controller closed the connection")
	return attack.Gather(ctx, 4*256, func(ctx context.Context, n int) error {
		from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+n%4))}
		conn, err := (&net.Dialer{LocalAddr: from, Timeout: time.Minute}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			return err
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		_, _ = conn.Write([]byte{22, 3, 1}) // the beginning of a handshake
		_, _ = conn.Read(make([]byte, 1))
		return errClosed
	}).Refused(t)
}
