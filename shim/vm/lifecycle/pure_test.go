package lifecycle

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmfile"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

func TestPodDNS(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	text := "# nameserver 1.1.1.1\nnameserver 127.0.0.53\nnameserver 192.0.2.1\nnameserver\nnameserver 2001:db8::1\n" +
		"nameserver none\ndomain example.org\nsearch a.example b.example\noptions ndots:5\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
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
		got, err := podDNS(&runtimeapi.PodSandboxConfig{DnsConfig: c.config}, conf)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		same := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(dns{}), cmpopts.EquateEmpty(), same); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
	if _, err := podDNS(nil, conf+".none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
}

func TestWithSubdomain(t *testing.T) {
	cluster := []string{"shop.svc.cluster.local", "svc.cluster.local", "cluster.local"}
	for _, c := range map[string]struct {
		searches  []string
		subdomain string
		want      []string
	}{
		"none":                  {cluster, "", cluster},
		"a subdomain":           {cluster, "web", append([]string{"web.shop.svc.cluster.local"}, cluster...)},
		"not first":             {[]string{"example.org", cluster[0]}, "web", []string{"web." + cluster[0], "example.org", cluster[0]}},
		"there before":          {[]string{cluster[0], "web." + cluster[0]}, "web", []string{cluster[0], "web." + cluster[0]}},
		"not Kubernetes' names": {[]string{"example.org"}, "web", []string{"example.org"}},
	} {
		assert.DeepEqual(t, withSubdomain(c.searches, c.subdomain, "shop"), c.want, cmpopts.EquateEmpty())
	}
}

func TestDomainName(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	for want, in := range map[string][2]string{
		"default_web-1_0123456789ab": {"default", "web-1"},
		"a--b_c.d-_0123456789ab":     {"a/_b", "c.d\n"},
		"__0123456789ab":             {"", ""},
		strings.Repeat("n", 63) + "_" + strings.Repeat("p", 96) + "_0123456789ab": {strings.Repeat("n", 64), strings.Repeat("p", 253)},
	} {
		if got := domainName(in[0], in[1], id); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestLogPath(t *testing.T) {
	l := layout.Layout{Folder: func(id string) string { return "/containers/" + id }}
	r := record.Container{ID: "vm"}
	r.Sandbox.Value = &runtimeapi.PodSandboxConfig{LogDirectory: "/var/log/pods/p"}
	r.Config.Value = &runtimeapi.ContainerConfig{LogPath: "vm/0.log"}
	if got := logPath(l, r); got != "/var/log/pods/p/vm/0.log" {
		t.Errorf("the kubelet's: %s", got)
	}
	r.Config.Value.LogPath = ""
	if got := logPath(l, r); got != "/containers/vm/console.log" {
		t.Errorf("crictl's: %s", got)
	}
}

// TestEnd: libvirt's reasons in containerd's words.
func TestEnd(t *testing.T) {
	unexpected := ending{137, "Error", "QEMU ended unexpectedly: see libvirt's log of domain d"}
	panicked := ending{134, "GuestPanicked", "the guest's kernel panicked"}
	killed := ending{137, "OOMKilled", "QEMU needed more memory than the container's limit and the pod's overhead allow"}
	unserved := ending{137, "Error", "virtiofsd ended unexpectedly, and the VM was stopped: its guest would wait for the file system forever"}
	for _, c := range []struct {
		reason                  domain.Reason
		oom, panicked, unserved bool
		want                    ending
	}{
		{domain.ReasonShutdown, false, false, false, ending{0, "Completed", ""}},
		{domain.ReasonShutdown, true, true, false, ending{0, "Completed", ""}},
		{domain.ReasonDestroyed, false, false, false, ending{137, "Error", "the VM was powered off"}},
		{domain.ReasonCrashed, false, false, false, unexpected},
		{domain.ReasonCrashed, false, true, false, panicked},
		{domain.ReasonCrashed, true, true, false, killed},
		{domain.ReasonFailed, false, false, false, unexpected},
		{domain.ReasonDaemon, false, false, false, unexpected},
		{domain.ReasonOther, false, true, false, panicked},
		{domain.ReasonNone, false, false, false, unexpected},
		{domain.ReasonShutdown, false, false, true, unserved},
		{domain.ReasonDestroyed, false, false, true, unserved},
		{domain.ReasonDestroyed, true, false, true, ending{137, "OOMKilled",
			"virtiofsd needed more memory than the container's limit and the pod's overhead allow, and the VM was stopped"}},
	} {
		got := endingOf(c.reason, "d", func() bool { return c.oom }, func() bool { return c.unserved }, func() bool { return c.panicked }, func() bool { return false }, func() bool { return false })
		if got != c.want {
			t.Errorf("%q, OOM %t, panicked %t: %+v, want %+v", c.reason, c.oom, c.panicked, got, c.want)
		}
	}
}

// TestNodeShutdown: a guest that ends with its node has not ended by itself. What says more than that stays.
func TestNodeShutdown(t *testing.T) {
	yes, no := func() bool { return true }, func() bool { return false }
	asked := ending{143, "NodeShutdown", "the guest powered off because its node shut down"}
	ended := ending{137, "NodeShutdown", "the VM was ended because its node shut down"}
	for reason, want := range map[domain.Reason]ending{
		domain.ReasonShutdown: asked, domain.ReasonCrashed: ended, domain.ReasonFailed: ended, domain.ReasonNone: ended,
		domain.ReasonDestroyed: {137, "Error", "the VM was powered off"},
	} {
		if got := endingOf(reason, "d", no, no, no, no, yes); got != want {
			t.Errorf("%q: %+v, want %+v", reason, got, want)
		}
	}
	if got := endingOf(domain.ReasonFailed, "d", no, no, yes, no, yes); got.reason != "GuestPanicked" {
		t.Errorf("a panic: %+v", got)
	}
}

// TestLetLockMemory gives a process the limit, and takes nothing from one with a higher limit.
func TestLetLockMemory(t *testing.T) {
	c := exec.CommandContext(t.Context(), "sleep", "1000")
	assert.NilError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	pid := c.Process.Pid
	var has unix.Rlimit
	assert.NilError(t, unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, nil, &has))
	most := has.Max
	assert.NilError(t, unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, &unix.Rlimit{Max: most}, nil))
	for _, bytes := range []uint64{most / 2, most / 4} {
		assert.NilError(t, letLockMemory(pid, bytes))
		assert.NilError(t, unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, nil, &has))
		assert.Equal(t, has, unix.Rlimit{Cur: most / 2, Max: most})
	}
	assert.ErrorContains(t, letLockMemory(1<<30, 0), "let QEMU lock memory: no such process")
	got := lockable(vmspec.Spec{Memory: 1 << 30, MaxMemory: 2 << 30, AddedOverhead: 3 << 20})
	assert.Equal(t, got, uint64(3<<30+3<<20))
}

func TestPodInterfaces(t *testing.T) {
	for _, bad := range []vmspec.Interface{{MAC: "x"}, {NetworkCIDR: "x"}, {NetworkCIDR6: "x"}, {DHCP: &vmspec.DHCPOptions{NTPServers: []string{"x"}}}} {
		bad.Name = "card"
		_, err := podInterfaces([]vmspec.Interface{bad})
		if !errors.Is(err, vmerrors.ErrInvalid) || !strings.Contains(err.Error(), `network card "card"`) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	all, err := podInterfaces([]vmspec.Interface{{
		Device: "eth0", Binding: vmspec.BindingMasquerade, MAC: "02:00:00:00:00:01", Ports: []vmspec.Port{{Protocol: "tcp", Number: 80}},
		NetworkCIDR: "10.9.0.0/24", NetworkCIDR6: "fd09::/120", Queues: 2,
		DHCP: &vmspec.DHCPOptions{BootFile: "a", TFTPServer: "b", NTPServers: []string{"192.0.2.1"}, Private: map[uint8]string{224: "c"}},
	}})
	if err != nil || len(all) != 1 || all[0].Queues != 2 || all[0].Ports[0].Number != 80 || !all[0].IPv6.IsValid() {
		t.Errorf("interfaces %+v, %v", all, err)
	}
	if o := all[0].DHCP; o.BootFile != "a" || o.TFTPServer != "b" || len(o.NTPServers) != 1 || o.Private[224] != "c" {
		t.Errorf("DHCP options %+v", o)
	}
}

func TestDescribeTheKernel(t *testing.T) {
	folder := func(id string) string { return "/" + id }
	d := Describer{Disks: noDisks{}, Files: vmfile.New(nil, folder), Layout: layout.Layout{Folder: folder}}
	r := record.Container{ID: "vm"}
	if m := d.Describe(r); m.Kernel != "" || m.Initrd != "" {
		t.Errorf("without a kernel: %+v", m)
	}
	r.Spec.Firmware.Kernel = &vmspec.Kernel{Path: "/boot/vmlinuz", Initrd: "/boot/initrd"}
	if m := d.Describe(r); m.Kernel != "/vm/kernel" || m.Initrd != "/vm/initrd" {
		t.Errorf("kernel %s, initrd %s", m.Kernel, m.Initrd)
	}
}

type noDisks struct{}

func (noDisks) Describe(record.Container) []domain.Disk { return nil }

func TestProgress(t *testing.T) {
	var p progress
	if got := p.String(); got != "its disks are being made" {
		t.Errorf("before any: %s", got)
	}
	for _, c := range []struct {
		now Progress
		log bool
	}{
		{Progress{Waiting: true}, true}, {Progress{Waiting: true}, false}, {Progress{}, true}, {Progress{Done: 0.05}, false},
		{Progress{Done: 0.1}, true}, {Progress{Waiting: true, Done: 0.1}, true}, {Progress{Done: 0.15}, false}, {Progress{Done: 1}, true},
	} {
		if got := p.set("a", c.now); got != c.log {
			t.Errorf("%+v is logged: %t", c.now, got)
		}
	}
	p.set("b", Progress{Waiting: true})
	if got, want := p.String(), `disk "a" is being expanded: 100 %, disk "b" is being expanded: waiting for other disks`; got != want {
		t.Errorf("progress %s", got)
	}
}
