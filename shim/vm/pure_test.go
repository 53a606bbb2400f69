package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/golden"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/cgroup"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
)

func TestLimits(t *testing.T) {
	const mi = 1 << 20
	m := &Manager{Options: Options{OverheadMemory: 256 * mi}}
	for name, c := range map[string]struct {
		container, overhead *runtimeapi.LinuxContainerResources
		want                cgroup.Limits
	}{
		"nothing":            {nil, nil, cgroup.Limits{}},
		"the node's default": {&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 100 * mi}, nil, cgroup.Limits{Memory: 356 * mi}},
		"the pod's overhead": {
			&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 100 * mi, MemorySwapLimitInBytes: 200 * mi},
			&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 50 * mi},
			cgroup.Limits{Memory: 150 * mi, MemorySwap: 250 * mi},
		},
		"no limit of swap": {
			&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 100 * mi, MemorySwapLimitInBytes: -1}, nil,
			cgroup.Limits{Memory: 356 * mi, MemorySwap: -1},
		},
		"more than there is": {
			&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: math.MaxInt64 - 1}, nil, cgroup.Limits{Memory: math.MaxInt64},
		},
		"cpu": {
			&runtimeapi.LinuxContainerResources{CpuShares: 512, CpuQuota: 150000, CpuPeriod: 100000, CpusetCpus: "0-1", CpusetMems: "0"},
			&runtimeapi.LinuxContainerResources{CpuQuota: 25000, CpuPeriod: 100000},
			cgroup.Limits{CPUShares: 512, CPUQuota: 175000, CPUPeriod: 100000, CPUSetCPUs: "0-1", CPUSetMems: "0"},
		},
		"cpu of another period": {
			&runtimeapi.LinuxContainerResources{CpuShares: -1, CpuQuota: 150000, CpuPeriod: 100000},
			&runtimeapi.LinuxContainerResources{CpuQuota: 2500, CpuPeriod: 10000},
			cgroup.Limits{CPUQuota: 150000, CPUPeriod: 100000},
		},
		"huge pages": {
			&runtimeapi.LinuxContainerResources{
				HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 4 * mi}}, Unified: map[string]string{"a": "b"},
			}, nil,
			cgroup.Limits{HugepageLimits: []cgroup.HugepageLimit{{PageSize: "2MB", Bytes: 4 * mi}}, Unified: map[string]string{"a": "b"}},
		},
	} {
		got := m.limits(
			c.container,
			&runtimeapi.PodSandboxConfig{Linux: &runtimeapi.LinuxPodSandboxConfig{Overhead: c.overhead}})
		if diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestPodDNS(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	text := "# nameserver 1.1.1.1\nnameserver 127.0.0.53\nnameserver 192.0.2.1\nnameserver\nnameserver 2001:db8::1\n" +
		"nameserver none\ndomain example.org\nsearch a.example b.example\noptions ndots:5\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m := &Manager{Options: Options{ResolvConf: conf}}
	node := dns{
		servers:  []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
		searches: []string{"a.example", "b.example"},
	}
	for name, c := range map[string]struct {
		config *runtimeapi.DNSConfig
		want   dns
	}{
		"none":  {nil, node},
		"empty": {&runtimeapi.DNSConfig{}, node},
		"the pod's": {
			&runtimeapi.DNSConfig{Servers: []string{"10.96.0.10", "::1"}, Searches: []string{"svc"}},
			dns{servers: []netip.Addr{netip.MustParseAddr("10.96.0.10")}, searches: []string{"svc"}},
		},
		"searches only": {&runtimeapi.DNSConfig{Searches: []string{"svc"}}, dns{searches: []string{"svc"}}},
	} {
		got, err := m.podDNS(&runtimeapi.PodSandboxConfig{DnsConfig: c.config})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		same := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(dns{}), cmpopts.EquateEmpty(), same); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	m.ResolvConf = conf + ".none"
	if _, err := m.podDNS(nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
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

func TestDomainName(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	for want, in := range map[string][2]string{
		"default_web-1_0123456789ab":                {"default", "web-1"},
		"a--b_c.d-_0123456789ab":                    {"a/_b", "c.d\n"},
		"__0123456789ab":                            {"", ""},
		strings.Repeat("n", 48) + "_p_0123456789ab": {strings.Repeat("n", 63), "p"},
	} {
		if got := domainName(in[0], in[1], id); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestMatches(t *testing.T) {
	c := &runtimeapi.Container{
		Id: "c1", PodSandboxId: "p1", State: runtimeapi.ContainerState_CONTAINER_RUNNING, Labels: map[string]string{"a": "1", "b": ""},
	}
	running := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	created := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_CREATED}
	for _, f := range []*runtimeapi.ContainerFilter{
		nil, {}, {Id: "c1"}, {PodSandboxId: "p1"}, {State: running}, {LabelSelector: map[string]string{"a": "1"}},
		{LabelSelector: map[string]string{"b": ""}},
		{Id: "c1", PodSandboxId: "p1", State: running, LabelSelector: map[string]string{"a": "1", "b": ""}},
	} {
		if !matches(c, f) {
			t.Errorf("filter %v: does not match", f)
		}
	}
	for _, f := range []*runtimeapi.ContainerFilter{
		{Id: "c2"}, {PodSandboxId: "p2"}, {State: created}, {LabelSelector: map[string]string{"a": "2"}},
		{LabelSelector: map[string]string{"c": ""}}, {Id: "c1", State: created},
	} {
		if matches(c, f) {
			t.Errorf("filter %v: matches", f)
		}
	}
}

// TestEnd: libvirt's reasons in containerd's words. The cgroup of the test's machine is gone.
func TestEnd(t *testing.T) {
	unexpected := ending{137, "Error", "QEMU ended unexpectedly: see libvirt's log of domain d"}
	panicked := ending{134, "Error", "the guest's kernel panicked"}
	for _, c := range []struct {
		reason   domain.Reason
		panicked bool
		want     ending
	}{
		{domain.ReasonShutdown, false, ending{0, "Completed", ""}},
		{domain.ReasonDestroyed, false, ending{137, "Error", "the machine was powered off"}},
		{domain.ReasonCrashed, false, unexpected},
		{domain.ReasonCrashed, true, panicked},
		{domain.ReasonFailed, false, unexpected},
		{domain.ReasonDaemon, false, unexpected},
		{domain.ReasonOther, true, panicked},
		{domain.ReasonNone, false, unexpected},
	} {
		r := record.Container{ID: id(1), Domain: record.Domain{Name: "d"}}
		r.Sandbox.Value = &runtimeapi.PodSandboxConfig{Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: "/nodevirt-test-none"}}
		l := &launch{Manager: manager(t), c: newMachine(r), rec: r}
		l.c.panicked.Store(c.panicked)
		if got := l.end(c.reason); got != c.want {
			t.Errorf("%q, panicked %t: %+v, want %+v", c.reason, c.panicked, got, c.want)
		}
	}
}

func id(n int) string { return fmt.Sprintf("%064x", n) }

// manager is one without parts: enough for its tables.
func manager(t *testing.T) *Manager {
	t.Helper()
	records, err := record.Open(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	return &Manager{
		Options: Options{
			Records: records, Logger: slog.New(slog.DiscardHandler), UIDBase: 5000, UIDCount: 100,
			ConsoleDir: "/run/nodevirt/consoles", Accelerator: domain.TCG,
		},
		sandboxes: map[string]record.Sandbox{}, machines: map[string]*machine{}, names: map[string]string{},
	}
}

// container is the VM container of a pod of its own.
func container(m *Manager, n int) record.Container {
	pod := fmt.Sprintf("%c%063x", 'a'+n%6, n)
	m.mu.Lock()
	m.sandboxes[pod] = record.Sandbox{ID: pod}
	m.mu.Unlock()
	r := record.Container{ID: id(n), SandboxID: pod, State: record.Creating}
	r.Config.Value = &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "vm"}}
	r.Sandbox.Value = &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: fmt.Sprint("pod-", n), Namespace: "ns", Uid: "u"}}
	return r
}

// TestReserveAtOnce: many at a time, and each has a user of its own.
func TestReserveAtOnce(t *testing.T) {
	m := manager(t)
	var all sync.WaitGroup
	errs := make([]error, m.UIDCount+20)
	for n := range errs {
		all.Go(func() {
			errs[n] = m.reserve(newMachine(container(m, n)))
			_ = m.List(nil)
			_ = m.Has(id(n))
		})
	}
	all.Wait()
	failed := 0
	for _, err := range errs {
		if err == nil {
			continue
		}
		failed++
		if want := "all 100 user ids for VMs are taken: widen vm.uid_count in the shim's config"; err.Error() != want {
			t.Errorf("got %v", err)
		}
	}
	users := map[uint32]bool{}
	for _, c := range m.all("") {
		d := c.record().Domain
		if d.UID < 5000 || d.UID >= 5100 || d.GID != d.UID || users[d.UID] {
			t.Errorf("user %d, group %d: taken %t", d.UID, d.GID, users[d.UID])
		}
		users[d.UID] = true
	}
	if failed != 20 || len(users) != 100 {
		t.Errorf("%d failed, %d users", failed, len(users))
	}
	// What is forgotten is free again.
	gone := m.all("")[7]
	m.forget(gone)
	if _, err := gone.lock(t.Context()); !errors.Is(err, ErrNotFound) {
		t.Errorf("the turn of one that is gone: %v", err)
	}
	c := newMachine(container(m, 1000))
	if err := m.reserve(c); err != nil || c.record().Domain.UID != gone.record().Domain.UID {
		t.Errorf("after one is gone: %v, user %d", err, c.record().Domain.UID)
	}
}

// TestReserveSame: of many that want one name, one gets it.
func TestReserveSame(t *testing.T) {
	m := manager(t)
	r := container(m, 1)
	var all sync.WaitGroup
	errs := make([]error, 20)
	for n := range errs {
		all.Go(func() {
			r := r
			r.ID = id(100 + n)
			errs[n] = m.reserve(newMachine(r))
		})
	}
	all.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else if !errors.Is(err, ErrExists) {
			t.Errorf("got %v", err)
		}
	}
	if won != 1 {
		t.Errorf("%d have it", won)
	}
	// A second VM in the pod, by another name, waits until the first has ended.
	second := r
	second.ID = id(2)
	second.Config.Value = &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "other"}}
	if err := m.reserve(newMachine(second)); !errors.Is(err, ErrExists) {
		t.Errorf("a second VM: %v", err)
	}
	first := m.all("")[0]
	ended := first.record()
	ended.State = record.Exited
	if err := m.put(first, ended); err != nil {
		t.Fatal(err)
	}
	<-first.exited
	if err := m.reserve(newMachine(second)); err != nil {
		t.Errorf("after the first has ended: %v", err)
	}
	// A sandbox that was removed while its container was being made.
	orphan := container(m, 9)
	if err := m.ForgetSandbox(orphan.SandboxID); err != nil {
		t.Fatal(err)
	}
	if err := m.reserve(newMachine(orphan)); !errors.Is(err, ErrNotFound) {
		t.Errorf("without a sandbox: %v", err)
	}
}

func TestFind(t *testing.T) {
	m := manager(t)
	for _, full := range []string{"aa" + id(1)[2:], "ab" + id(2)[2:], "b" + id(3)[1:]} {
		r := record.Container{ID: full}
		m.machines[full] = newMachine(r)
	}
	for short, want := range map[string]string{
		"aa": "aa" + id(1)[2:], "b": "b" + id(3)[1:], "ab" + id(2)[2:]: "ab" + id(2)[2:], "a": "", "": "", "c": "", "aa" + id(1)[2:] + "0": "",
	} {
		c, err := m.find(short)
		if m.Has(short) != (want != "") {
			t.Errorf("%q: Has is %t", short, m.Has(short))
		}
		switch {
		case want == "" && !errors.Is(err, ErrNotFound):
			t.Errorf("%q: %v", short, err)
		case want != "" && (err != nil || c.record().ID != want):
			t.Errorf("%q: %v, %v", short, c, err)
		}
	}
}

// TestTurn: one at a time, and who can't wait is told so.
func TestTurn(t *testing.T) {
	c := newMachine(record.Container{ID: id(1)})
	n := 0
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			unlock, err := c.lock(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer unlock()
			n++
		})
	}
	all.Wait()
	if n != 50 {
		t.Errorf("%d turns", n)
	}
}

// TestEvents: no subscriber holds up the others, and none is written to when it has gone.
func TestEvents(t *testing.T) {
	m := manager(t)
	ctx, cancel := context.WithCancel(t.Context())
	gone, stays := m.Subscribe(ctx), m.Subscribe(t.Context())
	var all sync.WaitGroup
	for n := range 10 {
		all.Go(func() {
			for range 2 * backlog / 10 {
				m.publish(record.Container{ID: id(n), SandboxID: "p"}, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
			}
		})
	}
	cancel()
	all.Wait()
	for range gone {
		continue // until it is closed
	}
	if len(stays) != backlog {
		t.Errorf("%d events wait, want %d", len(stays), backlog)
	}
	if e := <-stays; e.GetPodSandboxStatus().GetId() != "p" || e.GetCreatedAt() == 0 {
		t.Errorf("event %v", e)
	}
}

// TestStatus is what CRI is told of a container in each state.
func TestStatus(t *testing.T) {
	at := time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)
	r := record.Container{
		ID: id(1), SandboxID: id(2), CreatedAt: at, StartedAt: at.Add(time.Second), FinishedAt: at.Add(time.Minute),
		ExitCode: 137, Reason: "Error", Message: "why", LogPath: "/log",
		Image: record.Image{Tag: "disk:1", Ref: "disk@sha256:1", ID: "sha256:2"}, Domain: record.Domain{UID: 5, GID: 6, PID: 7},
	}
	r.Config.Value = &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "vm", Attempt: 1}, Image: &runtimeapi.ImageSpec{Image: "sha256:2"},
		Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "1"},
		Linux: &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 5}},
	}
	for _, state := range []record.State{record.Creating, record.Created, record.Starting, record.Running, record.Exited} {
		r.State = state
		assertJSON(t, status(r), "status-"+string(state)+".json")
		assertJSON(t, listed(r), "listed-"+string(state)+".json")
	}
	r.StartedAt, r.Image.Tag, r.Image.Ref = time.Time{}, "", ""
	assertJSON(t, status(r), "status-never-started.json")
}

// assertJSON compares a message, as JSON, with a golden file.
func assertJSON(t *testing.T, m proto.Message, name string) {
	t.Helper()
	text, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer // protojson's own spaces differ from build to build
	if err := json.Indent(&b, text, "", "  "); err != nil {
		t.Fatal(err)
	}
	golden.Assert(t, b.String()+"\n", name)
}
