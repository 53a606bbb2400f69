package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller"
	"github.com/nodevirt/nodevirt/controller/api"
	"github.com/nodevirt/nodevirt/test/apiserver"
	"github.com/nodevirt/nodevirt/test/needs"
	"github.com/nodevirt/nodevirt/test/wait"
)

// world is an API server with a controller, and the test as scheduler and kubelet.
type world struct {
	testing.TB
	client.Client
	server   *apiserver.Server
	requests *requests // of the controller
	stop     func()    // the controller
	// between is between the controller and the API server; nil for nothing.
	between func(http.RoundTripper) http.RoundTripper
}

const namespace = "default"

// shared is the API server of all tests of the package, whose objects have
// different names.
var shared *apiserver.Server

func TestMain(m *testing.M) {
	needs.PartsOfAll("kube-apiserver and etcd")
	flag.Parse()
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "nodevirt-apiserver-")
	if err != nil {
		return 1, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	shared, err = apiserver.Start(context.Background(), dir)
	defer func() { shared.Close() }()
	if err == nil {
		err = shared.Apply(context.Background(), "../deploy/crds/*.yaml", "../deploy/kubernetes/runtimeclass.yaml")
	}
	if err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// newWorld starts a controller for a test.
func newWorld(t testing.TB) *world {
	t.Helper()
	scheme, err := api.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(shared.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t, Client: c, server: shared, requests: new(requests)}
	t.Cleanup(func() { w.stop() })
	w.start()
	return w
}

// start runs a controller until stop.
func (w *world) start() { w.startWith(controller.Options{}) }

// startWith does it with options.
func (w *world) startWith(o controller.Options) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	output := &testWriter{t: w}
	go func() {
		defer close(done)
		log := slog.New(slog.NewTextHandler(output, &slog.HandlerOptions{Level: slog.LevelWarn}))
		o.RuntimeClass, o.MetricsAddress, o.HealthAddress = "vm", "0", "0"
		config := w.server.Config()
		config.WrapTransport = w.requests.count
		if w.between != nil {
			config.Wrap(w.between)
		}
		if err := controller.Run(ctx, config, o, log); err != nil && ctx.Err() == nil {
			w.Errorf("controller: %v", err)
		}
	}()
	w.stop = func() {
		cancel()
		<-done
		output.close()
	}
}

// testWriter logs to a test until it is closed: a cache that was about to be filled when the
// controller stopped says so when it likes.
type testWriter struct {
	mu sync.Mutex
	t  testing.TB // nil: closed
}

func (w *testWriter) Write(text []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.t != nil {
		w.t.Log(string(text))
	}
	return len(text), nil
}

func (w *testWriter) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.t = nil
}

// patience bounds each wait for a state.
const patience = 3 * time.Minute

// until waits for an object of that name to be as wanted; what is wanted says
// what is missing.
func until[T client.Object](w *world, o T, name, what string, wanted func(T) bool) T {
	w.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := w.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o)
		if err == nil && wanted(o) {
			return o
		}
		if err != nil && !apierrors.IsNotFound(err) && time.Now().After(deadline) {
			w.Fatalf("wait for %s: %v", what, err)
		}
		if time.Now().After(deadline) {
			w.Fatalf("wait for %s of %s in vain: %v, %s", what, name, err, statusOf(o))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// statusOf is what an object says of itself, in JSON.
func statusOf(o client.Object) string {
	text, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	var whole struct{ Metadata, Status json.RawMessage }
	if err := json.Unmarshal(text, &whole); err != nil {
		return err.Error()
	}
	return string(whole.Metadata) + "\n" + string(whole.Status)
}

func untilGone(w *world, o client.Object, name string) {
	w.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := w.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o)
		if apierrors.IsNotFound(err) {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("wait for %s to be gone: %v, %s", name, err, statusOf(o))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// eventually waits until something is so.
func eventually(w *world, so func() bool, what func() string) {
	w.Helper()
	wait.Success(w, "the controller", func(context.Context) error {
		if so() {
			return nil
		}
		return errors.New(what())
	})
}

const inNamespace = client.InNamespace(namespace)

// named selects the pods of instances of a name.
func named(name string) client.ListOption {
	return client.MatchingLabels{kubevirt.DeprecatedVirtualMachineNameLabel: name}
}

// touch writes an annotation on an object, as others may do at any time.
func (w *world) touch(o, now client.Object) error {
	if err := w.Get(w.Context(), client.ObjectKeyFromObject(o), now); err != nil {
		return err
	}
	all := now.GetAnnotations()
	if all == nil {
		all = map[string]string{}
	}
	all["example.com/touched"] = time.Now().String()
	now.SetAnnotations(all)
	return w.Update(w.Context(), now)
}
