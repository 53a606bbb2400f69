package subresources_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/aggregated"
	"github.com/nodevirt/nodevirt/controller/api"
	"github.com/nodevirt/nodevirt/controller/pod"
	"github.com/nodevirt/nodevirt/controller/subresources"
	"github.com/nodevirt/nodevirt/test/apiserver"
	"github.com/nodevirt/nodevirt/test/cluster/pki"
	"github.com/nodevirt/nodevirt/test/wait"
)

// world is a real API server, ours behind it, and the test as the former's proxy.
type world struct {
	*testing.T
	client.Client
	front *pki.Authority
	url   string
	http  func(*tls.Certificate) *http.Client
	// meanwhile is called before each request of the server's to the API server.
	meanwhile atomic.Pointer[func(*http.Request)]
}

type transport struct {
	*world
	http.RoundTripper
}

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if do := t.meanwhile.Load(); do != nil {
		(*do)(r)
	}
	return t.RoundTripper.RoundTrip(r)
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, front: pki.ForTest(t, "authority")}
	file := filepath.Join(t.TempDir(), "front.crt")
	assert.NilError(t, os.WriteFile(file, w.front.PEM(), 0o600))
	k := apiserver.ForTest(t, "--requestheader-client-ca-file="+file, "--requestheader-allowed-names=front",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-")
	assert.NilError(t, k.Apply(t.Context(), "../../deploy/crds/*.yaml"))
	scheme, err := api.NewScheme()
	assert.NilError(t, err)
	assert.NilError(t, rbacv1.AddToScheme(scheme))
	w.Client, err = client.New(k.Config(), client.Options{Scheme: scheme})
	assert.NilError(t, err)
	config := k.Config()
	config.WrapTransport = func(to http.RoundTripper) http.RoundTripper { return transport{w, to} }
	own := pki.ForTest(t, "authority")
	serving := own.TLS(t, pki.Identity{Name: "subresources", Hosts: []string{"127.0.0.1"}})
	log := slog.New(slog.DiscardHandler)
	cluster, err := kubernetes.NewForConfig(k.Config())
	assert.NilError(t, err)
	s, err := aggregated.New(aggregated.Options{
		Certificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &serving, nil },
		Cluster:     cluster, Log: log,
	})
	assert.NilError(t, err)
	users, err := subresources.New(subresources.Options{
		Caller: s.Caller, Config: config, Scheme: scheme, Version: "test", Log: log,
	})
	assert.NilError(t, err)
	s.Add(subresources.Group, users.Handler(), subresources.Versions...)
	s.Describe(users.Paths())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.NilError(t, err)
	w.url = "https://" + l.Addr().String() + "/apis/subresources.kubevirt.io/v1/namespaces/default/"
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	assert.NilError(t, wait.Do(t.Context(), func(context.Context) error { return s.Ready(nil) }))
	roots := own.Pool()
	w.http = func(c *tls.Certificate) *http.Client {
		config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		if c != nil {
			config.Certificates = []tls.Certificate{*c}
		}
		return &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	}
	return w
}

// ask makes a call for a user, with the certificate of the proxy.
func (w *world) ask(proxy *tls.Certificate, user, method, path, body string) (code int, message string) {
	w.Helper()
	code, text := w.call(proxy, user, method, path, body)
	var status struct{ Message string }
	if len(bytes.TrimSpace(text)) > 0 {
		assert.NilError(w.T, json.Unmarshal(text, &status))
	}
	return code, status.Message
}

// call is ask with all of the reply.
func (w *world) call(proxy *tls.Certificate, user, method, path, body string) (code int, text []byte) {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), method, w.url+path, strings.NewReader(body))
	assert.NilError(w.T, err)
	r.Header.Set("X-Remote-User", user)
	r.Header.Set("X-Remote-Group", "people")
	reply, err := w.http(proxy).Do(r)
	assert.NilError(w.T, err)
	defer func() { _ = reply.Body.Close() }()
	text, err = io.ReadAll(reply.Body)
	assert.NilError(w.T, err)
	return reply.StatusCode, text
}

// may lets a user do one thing with subresources.
func (w *world) may(user, verb string, resources ...string) {
	w.Helper()
	name := user + "-" + verb
	assert.NilError(w.T, w.Create(w.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{subresources.Group}, Resources: resources, Verbs: []string{verb}}},
	}))
	assert.NilError(w.T, w.Create(w.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}))
}

func TestServer(t *testing.T) {
	w := newWorld(t)
	front := w.front.TLS(t, pki.Identity{Name: "front"})
	w.may("starter", "update", "virtualmachines/start")
	w.may("viewer", "get", "virtualmachineinstances/console")
	w.may("admin", "update", "virtualmachines/start", "virtualmachines/stop", "virtualmachines/restart",
		"virtualmachineinstances/pause", "virtualmachines/migrate", "expand-vm-spec", "virtualmachines/addvolume",
		"virtualmachines/removevolume", "virtualmachines/memorydump", "virtualmachines/removememorydump", "virtualmachineinstances/addvolume", "virtualmachineinstances/removevolume")
	w.may("admin", "get", "virtualmachines/backup", "virtualmachines/objectgraph", "virtualmachineinstances/objectgraph", "virtualmachineinstances/console", "virtualmachineinstances/vnc", "virtualmachineinstances/portforward", "virtualmachineinstances/usbredir", "virtualmachineinstances/vsock",
		"virtualmachines/portforward", "virtualmachines/expand-spec")
	t.Run("callers", func(t *testing.T) { testCallers(t, w, front) })
	t.Run("lifecycle", func(t *testing.T) { testLifecycle(t, w, front) })
	t.Run("meanwhile", func(t *testing.T) { testMeanwhile(t, w, front) })
	t.Run("volumes", func(t *testing.T) { testVolumes(t, w, front) })
	t.Run("object graphs", func(t *testing.T) { testObjectGraphs(t, w, front) })
	t.Run("memory dumps", func(t *testing.T) { testMemoryDumps(t, w, front) })
	t.Run("pods", func(t *testing.T) { testOthersPods(t, w, front) })
	w.may("forwarder", "get", "virtualmachineinstances/portforward", "virtualmachines/portforward")
	t.Run("display", func(t *testing.T) { testDisplay(t, w, front) })
	t.Run("expand", func(t *testing.T) { testExpand(t, w, front) })
}

// Callers may do what RBAC says and nothing else.
func testCallers(t *testing.T, w *world, front tls.Certificate) {
	w.vm(t, "callers", kubevirt.RunStrategyHalted)
	for _, c := range []struct {
		name         string
		proxy        *tls.Certificate
		user, method string
		path         string
		code         int
		words        string
	}{
		{"nobody", &front, "", "PUT", "virtualmachines/callers/start", 401, ""},
		{"no right", &front, "somebody", "PUT", "virtualmachines/callers/start", 403,
			`virtualmachines/start.subresources.kubevirt.io "callers" is forbidden: user "somebody" cannot update resource "virtualmachines/start"`},
		{"another right", &front, "viewer", "PUT", "virtualmachines/callers/start", 403, ""},
		{"another subresource", &front, "starter", "PUT", "virtualmachines/callers/stop", 403, ""},
		{"another resource", &front, "starter", "GET", "virtualmachineinstances/callers/console", 403, ""},
		{"another namespace", &front, "starter", "PUT", "../kube-system/virtualmachines/callers/start", 403, ""},
		{"the right", &front, "starter", "PUT", "virtualmachines/callers/start", 202, ""},
		{"no such VM", &front, "starter", "PUT", "virtualmachines/nothing/start", 404, `virtualmachines.kubevirt.io "nothing" not found`},
		{"a subresource without a handler", &front, "admin", "GET", "virtualmachines/callers/backup", 501, "VirtualMachineBackup"},
		{"a migration without an instance", &front, "admin", "PUT", "virtualmachines/callers/migrate", 404, "not found"},
		{"a port that is none", &front, "admin", "GET", "virtualmachineinstances/callers/portforward/70000/tcp", 400, "1 to 65535"},
		{"a protocol that is none", &front, "admin", "GET", "virtualmachineinstances/callers/portforward/7/icmp", 400, "neither tcp nor udp"},
		{"UDP", &front, "admin", "GET", "virtualmachineinstances/callers/portforward/7/udp", 501, "UDP"},
	} {
		if code, message := w.ask(c.proxy, c.user, c.method, c.path, ""); code != c.code || !strings.Contains(message, c.words) {
			t.Errorf("%s: status %d, %q; want %d and %q", c.name, code, message, c.code, c.words)
		}
	}
}

// vm makes a virtual machine of a strategy.
func (w *world) vm(t *testing.T, name string, strategy kubevirt.VirtualMachineRunStrategy) *kubevirt.VirtualMachine {
	t.Helper()
	vm := &kubevirt.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: kubevirt.VirtualMachineSpec{
			RunStrategy: &strategy, Template: &kubevirt.VirtualMachineInstanceTemplateSpec{},
		},
	}
	assert.NilError(t, w.Create(t.Context(), vm))
	return vm
}

// vmi makes an instance in a phase, of a virtual machine if there is one.
func (w *world) vmi(t *testing.T, name string, owner *kubevirt.VirtualMachine, phase kubevirt.VirtualMachineInstancePhase) *kubevirt.VirtualMachineInstance {
	t.Helper()
	vmi := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if owner != nil {
		vmi.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, kubevirt.VirtualMachineGroupVersionKind)}
	}
	assert.NilError(t, w.Create(t.Context(), vmi))
	vmi.Status.Phase = phase
	assert.NilError(t, w.Status().Update(t.Context(), vmi))
	return vmi
}

// Which strategies take which requests, with an instance in which phase, and what comes of it.
func testLifecycle(t *testing.T, w *world, front tls.Certificate) {
	const (
		always, halted = kubevirt.RunStrategyAlways, kubevirt.RunStrategyHalted
		manual, rerun  = kubevirt.RunStrategyManual, kubevirt.RunStrategyRerunOnFailure
		once           = kubevirt.RunStrategyOnce
		running        = kubevirt.Running
		failed, none   = kubevirt.Failed, kubevirt.VmPhaseUnset
		unknown        = kubevirt.Unknown
	)
	for i, c := range []struct {
		strategy kubevirt.VirtualMachineRunStrategy
		phase    kubevirt.VirtualMachineInstancePhase
		verb     string
		body     string
		code     int
		want     string // the refusal, or the strategy and the requests then
	}{
		{halted, none, "start", "", 202, "Always []"},
		{halted, none, "start", `{"dryRun":["All"]}`, 202, "Halted []"},
		{halted, none, "start", `{"paused":true}`, 202, "Halted [Start]"},
		{halted, none, "start", `{`, 400, "can not unmarshal"},
		{always, running, "start", "", 409, "VM is already running"},
		{always, failed, "start", "", 409, "Always does not support manual start requests"},
		{manual, none, "start", "", 202, "Manual [Start]"},
		{manual, failed, "start", "", 202, "Manual [Stop Start]"},
		{rerun, none, "start", "", 202, "RerunOnFailure [Start]"},
		{once, failed, "start", "", 409, "Once does not support manual start requests"},
		{always, running, "stop", "", 202, "Halted []"},
		{once, running, "stop", "", 202, "Halted []"},
		{manual, running, "stop", "{}", 202, "Manual [Stop]"},
		{manual, none, "stop", "", 409, "VM is not running"},
		{halted, none, "stop", "", 409, "VM is not running"},
		{halted, running, "stop", "", 409, "shorter graceperiod"},
		{always, running, "restart", "", 202, "Always [Stop Start]"},
		{manual, running, "restart", "", 202, "Manual [Stop Start]"},
		{always, none, "restart", "", 409, "VM is not running"},
		{halted, running, "restart", "", 409, "Halted does not support manual restart requests"},
		{always, running, "restart", `{"gracePeriodSeconds":5}`, 400, "grace period"},
		// In a hurry, when there is no pod yet.
		{always, running, "restart", `{"gracePeriodSeconds":0}`, 202, "Always [Stop Start]"},
		{always, running, "stop", `{"gracePeriod":0}`, 202, "Halted []"},
		{manual, running, "stop", `{"gracePeriod":0}`, 202, "Manual [Stop]"},
		{halted, running, "stop", `{"gracePeriod":0}`, 202, "Halted []"},
		{always, unknown, "start", "", 409, "which does not answer, and may run there"},
	} {
		name := fmt.Sprintf("life-%d", i)
		vm := w.vm(t, name, c.strategy)
		if c.phase != none {
			w.vmi(t, name, vm, c.phase)
		}
		code, message := w.ask(&front, "admin", "PUT", "virtualmachines/"+name+"/"+c.verb, c.body)
		if code >= 400 || message != "" {
			if code != c.code || !strings.Contains(message, c.want) {
				t.Errorf("%s of %s with phase %q: status %d, %q; want %d and %q", c.verb, c.strategy, c.phase, code, message, c.code, c.want)
			}
			continue
		}
		assert.NilError(t, w.Get(t.Context(), client.ObjectKeyFromObject(vm), vm))
		requests := []kubevirt.StateChangeRequestAction{}
		for _, r := range vm.Status.StateChangeRequests {
			requests = append(requests, r.Action)
		}
		if got := fmt.Sprint(*vm.Spec.RunStrategy, " ", requests); code != c.code || got != c.want {
			t.Errorf("%s of %s with phase %q: status %d, then %s; want %d and %s", c.verb, c.strategy, c.phase, code, got, c.code, c.want)
		}
		if vmi := new(kubevirt.VirtualMachineInstance); strings.Contains(strings.ToLower(c.body), `graceperiod`) {
			assert.NilError(t, w.Get(t.Context(), client.ObjectKeyFromObject(vm), vmi))
			if g := vmi.Spec.TerminationGracePeriodSeconds; g == nil || *g != 0 {
				t.Errorf("%s with %s: the instance has %v to shut down", c.verb, c.body, g)
			}
		}
	}
	// One request at a time.
	code, message := w.ask(&front, "admin", "PUT", "virtualmachines/life-16/restart", "")
	if code != 409 || !strings.Contains(message, "already underway") {
		t.Errorf("a second restart: status %d, %q", code, message)
	}
	// An instance of another owner is not the VM's.
	w.vm(t, "stranger", manual)
	w.vmi(t, "stranger", nil, running)
	if code, message := w.ask(&front, "admin", "PUT", "virtualmachines/stranger/stop", ""); code != 409 || !strings.Contains(message, "another owner") {
		t.Errorf("stop with another's instance: status %d, %q", code, message)
	}
}

// What the controller writes to a virtual machine meanwhile is no conflict of the caller's.
func testMeanwhile(t *testing.T, w *world, front tls.Certificate) {
	for name, strategy := range map[string]kubevirt.VirtualMachineRunStrategy{
		"spec": kubevirt.RunStrategyHalted, "status": kubevirt.RunStrategyManual,
	} {
		vm := w.vm(t, "meanwhile-"+name, strategy)
		var once sync.Once
		touch := func(r *http.Request) {
			if r.Method == http.MethodPatch {
				once.Do(func() { w.touch(t, vm) })
			}
		}
		w.meanwhile.Store(&touch)
		code, message := w.ask(&front, "admin", "PUT", "virtualmachines/"+vm.Name+"/start", "")
		w.meanwhile.Store(nil)
		before := vm.ResourceVersion
		assert.NilError(t, w.Get(t.Context(), client.ObjectKeyFromObject(vm), vm))
		started := *vm.Spec.RunStrategy == kubevirt.RunStrategyAlways || len(vm.Status.StateChangeRequests) == 1
		if code != 202 || vm.Annotations["touched"] == "" || vm.ResourceVersion == before || !started {
			t.Errorf("%s: status %d, %q; then %+v", name, code, message, vm)
		}
	}
}

// touch writes to an object.
func (w *world) touch(t *testing.T, o client.Object) {
	t.Helper()
	o.SetAnnotations(map[string]string{"touched": "yes"})
	if err := w.Update(t.Context(), o); err != nil {
		t.Error(err)
	}
}

// A pod that merely has the name of an instance's pod is not entered.
func testOthersPods(t *testing.T, w *world, front tls.Certificate) {
	vmi := w.vmi(t, "podless", nil, kubevirt.Running)
	assert.NilError(t, w.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: pod.Name(vmi)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: pod.Container, Image: "example.com/trap"}}},
	}))
	w.vmi(t, "scheduled", nil, kubevirt.Scheduled)
	for _, name := range []string{"podless", "scheduled"} {
		for _, path := range []string{"console", "vnc", "vnc/screenshot", "portforward/22/tcp", "usbredir"} {
			code, message := w.ask(&front, "admin", "GET", "virtualmachineinstances/"+name+"/"+path, "")
			want := 409
			if path == "console" || path == "vnc" {
				want = 400 // clients try again
			}
			if code != want || !strings.Contains(message, "VMI is not running") {
				t.Errorf("%s of %s: status %d, %q", path, name, code, message)
			}
		}
		if code, message := w.ask(&front, "admin", "PUT", "virtualmachineinstances/"+name+"/pause", ""); code != 409 {
			t.Errorf("pause of %s: status %d, %q", name, code, message)
		}
	}
}

// A user who may forward ports may not see the display, nor enter an instance by the name of another
// virtual machine. What may be done comes as far as the pod, which has no node.
func testDisplay(t *testing.T, w *world, front tls.Certificate) {
	vm := w.vm(t, "display", kubevirt.RunStrategyManual)
	withPod := func(name string, owner *kubevirt.VirtualMachine, display bool) {
		vmi := w.vmi(t, name, owner, kubevirt.Running)
		vmi.Spec.Domain.Devices.AutoattachGraphicsDevice, vmi.Spec.Domain.Devices.AutoattachVSOCK = &display, &display
		assert.NilError(t, w.Update(t.Context(), vmi))
		assert.NilError(t, w.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: pod.Name(vmi),
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vmi, kubevirt.VirtualMachineInstanceGroupVersionKind)},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: pod.Container, Image: "example.com/guest"}}},
		}))
	}
	withPod("display", vm, true)
	withPod("dark", nil, false)
	w.vm(t, "dark", kubevirt.RunStrategyManual)
	const forbidden, noNode = `user "forwarder" cannot get resource "virtualmachineinstances/vnc"`, "connect to port"
	for _, c := range []struct {
		user, path, words string
		code              int
	}{
		{"forwarder", "virtualmachineinstances/display/portforward/5900/tcp", forbidden, 403},
		{"forwarder", "virtualmachines/display/portforward/5900", forbidden, 403},
		{"forwarder", "virtualmachines/display/portforward/22", noNode, 500},
		{"forwarder", "virtualmachineinstances/dark/portforward/5900", noNode, 500},
		{"forwarder", "virtualmachines/dark/portforward/22", "belongs to another owner", 409},
		{"admin", "virtualmachines/display/portforward/5900", noNode, 500},
		{"admin", "virtualmachineinstances/display/vnc?preserveSession=false", noNode, 500},
		{"admin", "virtualmachineinstances/display/vnc?preserveSession=true", "connect to the display", 500},
		{"admin", "virtualmachineinstances/dark/usbredir", "Not configured with USB Redirection", 409},
		{"admin", "virtualmachineinstances/dark/vsock?port=22", "set tls=false", 400},
		{"admin", "virtualmachineinstances/dark/vsock?port=22&tls=true", "set tls=false", 400},
		{"admin", "virtualmachineinstances/dark/vsock?tls=false", `port "" is no number`, 400},
		{"admin", "virtualmachineinstances/dark/vsock?port=22&tls=false", "VSOCK is not attached", 400},
		{"admin", "virtualmachineinstances/display/vsock?port=22&tls=false", "connect to port 22 of the VSOCK", 500},
		{"forwarder", "virtualmachineinstances/display/vsock?port=22&tls=false", `cannot get resource "virtualmachineinstances/vsock"`, 403},
	} {
		if code, message := w.ask(&front, c.user, "GET", c.path, ""); code != c.code || !strings.Contains(message, c.words) {
			t.Errorf("%s, %s: status %d, %q; want %d and %q", c.user, c.path, code, message, c.code, c.words)
		}
	}
}

func testExpand(t *testing.T, w *world, front tls.Certificate) {
	w.vm(t, "expand", kubevirt.RunStrategyHalted)
	if code, message := w.ask(&front, "admin", "GET", "virtualmachines/expand/expand-spec", ""); code != 200 {
		t.Errorf("expand-spec: status %d, %q", code, message)
	}
	got := map[string]int{}
	for _, body := range []string{`{"spec":{"template":{}}}`, `{"spec":{}}`, `{"spec":{"template":{},"instancetype":{"name":"a"}}}`} {
		got[body], _ = w.ask(&front, "admin", "PUT", "expand-vm-spec", body)
	}
	want := map[string]int{
		`{"spec":{"template":{}}}`: 200, `{"spec":{}}`: 400, `{"spec":{"template":{},"instancetype":{"name":"a"}}}`: 400,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("expand-vm-spec (-want +got):\n%s", diff)
	}
}
