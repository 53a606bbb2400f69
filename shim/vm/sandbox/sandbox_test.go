package sandbox

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/nodeproblems"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// node is Sandboxes with fakes of all that they work with.
type node struct {
	*Sandboxes
	script     *vmtest.Script
	store      *vmtest.Store
	pods       *vmtest.Pods
	conditions *vmtest.Conditions
	problems   nodeproblems.Problems
	silenced   []string // network namespaces, with interfaces
}

func onNode(t *testing.T, do func(t *testing.T, n *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &vmtest.Script{}
		n := &node{script: s, store: vmtest.NewStore(s, t.TempDir()), pods: vmtest.NewPods(s), conditions: vmtest.NewConditions()}
		tasks := background.New()
		t.Cleanup(tasks.Stop)
		n.Sandboxes = New(Options{
			Table: table.New(n.store, 0, 0), Intents: n.store, Pods: n.pods, Conditions: n.conditions, Tasks: tasks,
			Silence: func(_ context.Context, netns string, interfaces ...string) error {
				n.silenced = append(n.silenced, netns+" "+strings.Join(interfaces, ","))
				return nil
			},
			Ready:    func() error { return nil },
			Problems: &n.problems,
			Logger:   slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
		do(t, n)
	})
}

func id(letter string) string { return strings.Repeat(letter, 64) }

func pod(name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "ns", Uid: "uid-" + name}}
}

// made is the sandbox that containerd made for a pod.
func made(letter string) record.Sandbox {
	r := record.Sandbox{ID: id(letter), Handler: "vm"}
	r.Config.Value = pod(letter)
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// intents returns how many intents there are.
func (n *node) intents(t *testing.T) int {
	t.Helper()
	all, err := n.store.Intents()
	must(t, err)
	return len(all)
}

// TestStartsOnce: a pod whose guest has run here and ended, as one of a backup of etcd has, does not start again.
func TestStartsOnce(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		must(t, n.Check(pod("a")))
		must(t, n.store.PutEnded("uid-a", record.Ended{At: time.Now(), Reason: "Migrated", Message: "the guest runs on node b"}))
		of := pod("a")
		of.Annotations = map[string]string{"kubernetes.io/config.source": "api"}
		err := n.Check(of)
		if !errors.Is(err, vmerrors.ErrInvalid) || !strings.Contains(err.Error(), "Migrated: the guest runs on node b") {
			t.Errorf("%v", err)
		}
		if refused := n.conditions.Refused(); len(refused) != 1 || refused[0].Error() != "the guest runs on node b" {
			t.Errorf("reported: %v", refused)
		}
		must(t, n.Check(pod("b")))
	})
}

func TestCheck(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		must(t, n.Check(pod("a")))
		bad := pod("b")
		bad.Annotations = map[string]string{vmspec.AnnotationVMI: "{"}
		err := n.Check(bad)
		if !errors.Is(err, vmerrors.ErrInvalid) || !strings.Contains(err.Error(), "pod ns/b: ") {
			t.Errorf("error %v", err)
		}
		if len(n.conditions.Refused()) != 1 {
			t.Errorf("refused %v", n.conditions.Refused())
		}
	})
}

func TestLifeOfASandbox(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		dropped, err := n.Intend("vm", pod("a"))
		must(t, err)
		must(t, n.Drop(dropped))
		key, err := n.Intend("vm", pod("a"))
		must(t, err)
		if key == dropped || len(key) != 64 || n.intents(t) != 1 {
			t.Errorf("keys %s, %s; %d intents", dropped, key, n.intents(t))
		}
		if n.Any("") {
			t.Error("an intent is no sandbox")
		}
		must(t, n.Add(key, made("a")))
		if handler, ok := n.Handler(id("a")); !ok || handler != "vm" || n.intents(t) != 0 || !n.Any("aa") || n.Any("b") {
			t.Errorf("handler %q, %t; %d intents", handler, ok, n.intents(t))
		}
		must(t, n.Forget(id("a")))
		if _, ok := n.Handler(id("a")); ok || !slices.Equal(n.conditions.Forgotten(), []string{"a"}) {
			t.Errorf("reports ended on %v", n.conditions.Forgotten())
		}
		n.script.Fail("Store.PutSandbox", vmtest.ErrFull)
		if err := n.Add(key, made("a")); !errors.Is(err, vmtest.ErrFull) {
			t.Errorf("error %v", err)
		}
		n.script.Fail("Store.RemoveSandbox", vmtest.ErrFull)
		if err := n.Forget(id("a")); !errors.Is(err, vmtest.ErrFull) {
			t.Errorf("error %v", err)
		}
	})
}

// TestResolve: containerd made the sandbox, and its answer was lost.
func TestResolve(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		key, err := n.Intend("vm", pod("a"))
		must(t, err)
		n.script.Fail("Pods.List", errors.New("containerd is away"))
		n.pods.Add(id("b"), pod("b").GetMetadata())
		n.pods.Add(id("a"), pod("a").GetMetadata())
		n.Resolve(key)
		time.Sleep(10 * time.Second)
		if n.Any("") || n.intents(t) != 1 || n.script.Count("Pods.List") < 10 {
			t.Errorf("%d intents after %d questions", n.intents(t), n.script.Count("Pods.List"))
		}
		n.script.Fail("Pods.List", nil)
		time.Sleep(2 * time.Second)
		if _, ok := n.Handler(id("a")); !ok || n.Any("b") || n.intents(t) != 0 {
			t.Errorf("sandboxes %v, %d intents", n.table.Sandboxes(), n.intents(t))
		}
		n.Resolve(key) // of which another call knows more
		time.Sleep(time.Second)
	})
}

// TestResolveOfNothing: containerd made no sandbox.
func TestResolveOfNothing(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		key, err := n.Intend("vm", pod("a"))
		must(t, err)
		n.Resolve(key)
		time.Sleep(time.Second)
		if n.Any("") || n.intents(t) != 0 {
			t.Errorf("sandboxes %v, %d intents", n.table.Sandboxes(), n.intents(t))
		}
	})
}

// TestResolveOfARemovedSandbox: the sandbox went between the two lists.
func TestResolveOfARemovedSandbox(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		key, err := n.Intend("vm", pod("a"))
		must(t, err)
		n.pods.Add(id("a"), pod("a").GetMetadata())
		release := n.script.Hold("Store.PutSandbox")
		n.Resolve(key)
		synctest.Wait()
		n.pods.Remove(id("a"))
		release()
		time.Sleep(time.Second)
		if n.Any("") || n.intents(t) != 0 {
			t.Errorf("sandboxes %v, %d intents", n.table.Sandboxes(), n.intents(t))
		}
	})
}

func TestReconcile(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		for _, letter := range []string{"a", "b", "c"} {
			must(t, n.Add(id("0"), made(letter)))
		}
		n.pods.Add(id("a"), pod("a").GetMetadata())
		n.pods.Add(id("d"), pod("d").GetMetadata())
		_, err := n.Intend("vm", pod("d"))
		must(t, err)
		busy := errors.New("it is busy")
		var removed []string
		remove := func(_ context.Context, sandboxID string) error {
			removed = append(removed, sandboxID)
			if sandboxID == id("c") {
				return busy
			}
			return nil
		}
		must(t, n.Reconcile(t.Context(), remove))
		slices.Sort(removed)
		known := n.table.Sandboxes()
		slices.Sort(known)
		if !slices.Equal(removed, []string{id("b"), id("c")}) || !slices.Equal(known, []string{id("a"), id("c"), id("d")}) || n.intents(t) != 0 {
			t.Errorf("removed VMs of %v; sandboxes %v, %d intents", removed, known, n.intents(t))
		}
		time.Sleep(time.Minute) // libvirtd is not there yet
		busy = nil
		n.script.Fail("Store.RemoveSandbox", vmtest.ErrFull)
		n.script.FailOnce("Pods.List", errors.New("no answer"))
		time.Sleep(5 * time.Minute)
		if !n.Any("c") {
			t.Error("the sandbox is forgotten though its record stays")
		}
		n.script.Fail("Store.RemoveSandbox", nil)
		time.Sleep(5 * time.Minute)
		if n.Any("c") {
			t.Error("the sandbox stays although its VMs are gone")
		}
		for _, call := range []string{"Pods.List", "Store.Intents"} {
			n.script.FailOnce(call, errors.New("no answer"))
			if err := n.Reconcile(t.Context(), remove); err == nil {
				t.Errorf("%s fails, and Reconcile does not", call)
			}
		}
	})
}

// TestContainerdForgets: a containerd without any of the pods from before has lost its data, and its VMs run on. Once
// an administrator has removed a VM, the sandbox goes too.
func TestContainerdForgets(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		for _, letter := range []string{"a", "b"} {
			must(t, n.Add(id("0"), made(letter)))
		}
		v := n.table.Recover(record.Container{ID: id("1"), SandboxID: id("a"), State: record.Running})
		time.Sleep(time.Second)
		n.pods.Add(id("d"), pod("d").GetMetadata()) // by a kubelet that made its pods again
		removed := 0
		remove := func(context.Context, string) error { removed++; return nil }
		must(t, n.Reconcile(t.Context(), remove))
		time.Sleep(time.Hour)
		if all := n.problems.All(); len(all) != 1 || all[0].Reason != nodeproblems.PodsLost || !strings.Contains(all[0].Message, "crictl stop -t 60 ID") {
			t.Errorf("the node's problems are %v", all)
		}
		if removed > 1 || !n.Any("a") || n.Any("b") { // b has no VM
			t.Errorf("removed %d; sandboxes %v", removed, n.table.Sandboxes())
		}
		must(t, n.table.Remove(v)) // crictl rm
		time.Sleep(time.Hour)
		if n.Any("a") || len(n.problems.All()) > 0 {
			t.Errorf("sandboxes %v, problems %v", n.table.Sandboxes(), n.problems.All())
		}
	})
}

// TestPodGoneWhileAway: a containerd that has pods from before has removed those that it no longer has.
func TestPodGoneWhileAway(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.pods.Add(id("d"), pod("d").GetMetadata())
		time.Sleep(time.Second)
		must(t, n.Add(id("0"), made("a")))
		n.table.Recover(record.Container{ID: id("1"), SandboxID: id("a"), State: record.Running})
		removed := 0
		must(t, n.Reconcile(t.Context(), func(context.Context, string) error { removed++; return nil }))
		if removed != 1 || n.Any("a") {
			t.Errorf("removed %d; sandboxes %v", removed, n.table.Sandboxes())
		}
	})
}

// TestFind: the sandbox of a guest whose record is lost.
func TestFind(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		for letter, parent := range map[string]string{"a": "/kubepods/pod-a", "b": "", "c": "kubepods-pod_c.slice"} {
			config := pod(letter)
			config.Linux = &runtimeapi.LinuxPodSandboxConfig{CgroupParent: parent}
			n.pods.Add(id(letter), config.GetMetadata())
			n.pods.SetConfig(id(letter), config)
		}
		n.pods.Add(id("e"), pod("e").GetMetadata()) // without a config
		for name, c := range map[string]struct{ group, domain, want string }{
			"by its cgroup":             {"/kubepods/pod-a", "ns_other_012345678901", id("a")},
			"by its slice":              {"/kubepods.slice/kubepods-pod_c.slice", "", id("c")},
			"by its name":               {"/nodevirt", "ns_b_012345678901", id("b")},
			"by another's name":         {"/kubepods/pod-x", "ns_a_012345678901", ""},
			"by a name that is no VM's": {"", "b", ""},
		} {
			r, found, err := n.Find(t.Context(), c.group, c.domain)
			must(t, err)
			if r.ID != c.want || found != (c.want != "") {
				t.Errorf("%s: %q", name, r.ID)
			}
		}
		n.script.Fail("Pods.Status", errors.New("no answer"))
		if _, _, err := n.Find(t.Context(), "", "ns_b_012345678901"); err == nil {
			t.Error("containerd does not answer, and Find does")
		}
	})
}

// TestReconcileOnAFullDisk: what was intended is recorded later.
func TestReconcileOnAFullDisk(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		_, err := n.Intend("vm", pod("a"))
		must(t, err)
		n.pods.Add(id("a"), pod("a").GetMetadata())
		n.script.Fail("Store.PutSandbox", vmtest.ErrFull)
		must(t, n.Reconcile(t.Context(), func(context.Context, string) error { return nil }))
		time.Sleep(5 * time.Second)
		n.script.Fail("Store.PutSandbox", nil)
		time.Sleep(2 * time.Second)
		if !n.Any("a") || n.intents(t) != 0 {
			t.Errorf("sandboxes %v, %d intents", n.table.Sandboxes(), n.intents(t))
		}
	})
}

func TestRestore(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		r := record.Container{ID: id("1"), SandboxID: id("a")}
		r.Sandbox.Value = pod("a")
		must(t, n.Restore("vm", r))
		if handler, ok := n.Handler(id("a")); !ok || handler != "vm" {
			t.Errorf("handler %q, %t", handler, ok)
		}
		must(t, n.Restore("other", r))
		if handler, _ := n.Handler(id("a")); handler != "vm" {
			t.Errorf("a sandbox that is known was changed: %q", handler)
		}
	})
}

func TestNetworkNamespace(t *testing.T) {
	const ns = `{"pid": 1, "runtimeSpec": {"linux": {"namespaces": [{"type": "pid"}, {"type": "network", "path": "/run/netns/x"}]}}}`
	if path, err := networkNamespace(ns); err != nil || path != "/run/netns/x" {
		t.Errorf("got %q, %v", path, err)
	}
	for _, info := range []string{
		"", "{", "{}", `{"runtimeSpec": {}}`, `{"runtimeSpec": {"linux": {"namespaces": [{"type": "network"}]}}}`,
	} {
		if path, err := networkNamespace(info); err == nil {
			t.Errorf("%q has the namespace %q", info, path)
		}
	}
}

func TestNetworkNamespaceOfASandbox(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.pods.Add(id("a"), pod("a").GetMetadata())
		if path, err := n.NetworkNamespace(t.Context(), id("a")); err != nil || path != "/run/netns/"+id("a") {
			t.Errorf("got %q, %v", path, err)
		}
		n.pods.Stop(id("a"))
		if _, err := n.NetworkNamespace(t.Context(), id("a")); err == nil || !strings.Contains(err.Error(), "is not running: a VM needs its pod's network") {
			t.Errorf("a sandbox that is stopped: %v", err)
		}
		if _, err := n.NetworkNamespace(t.Context(), id("b")); err == nil || !strings.Contains(err.Error(), "ask containerd for sandbox") {
			t.Errorf("no sandbox: %v", err)
		}
	})
}

// TestPrepare: a pod that waits for a guest is silent from the beginning on each interface whose address is the guest's.
func TestPrepare(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		const masquerade = `{"domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}}]}}, "networks": [{"name": "default", "pod": {}}]}`
		const second = `{"domain": {"devices": {"interfaces": [{"name": "default", "masquerade": {}}, {"name": "lan", "bridge": {}}]}},
			"networks": [{"name": "default", "pod": {}}, {"name": "lan", "multus": {"networkName": "lan"}}]}`
		const moves, migration = "kubevirt.io/allow-pod-bridge-network-live-migration", "m1"
		for name, annotations := range map[string]map[string]string{
			"boots":   {moves: ""},
			"stays":   {vmspec.AnnotationMigration: migration},
			"private": {vmspec.AnnotationMigration: migration, moves: "", vmspec.AnnotationVMI: masquerade},
			"second":  {vmspec.AnnotationMigration: migration, vmspec.AnnotationVMI: second},
			"waits":   {vmspec.AnnotationMigration: migration, moves: "", vmspec.AnnotationVMI: `{"domain": {"devices": {}}}`},
		} {
			config := pod(name)
			config.Annotations = annotations
			n.pods.Add(name, config.Metadata)
			must(t, n.Prepare(t.Context(), name, config))
		}
		slices.Sort(n.silenced)
		if !slices.Equal(n.silenced, []string{"/run/netns/second net1", "/run/netns/waits eth0"}) {
			t.Errorf("silenced %v", n.silenced)
		}
		config := pod("gone")
		config.Annotations = map[string]string{vmspec.AnnotationMigration: migration, moves: ""}
		if err := n.Prepare(t.Context(), "gone", config); err == nil {
			t.Error("a pod that could not be silenced is ready")
		}
	})
}
