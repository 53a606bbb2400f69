package hooks_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/hooks"
	"github.com/nodevirt/nodevirt/shim/hooks/domainxml"
	"github.com/nodevirt/nodevirt/shim/hooks/wire"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/hooksidecar"
)

const domain = `<domain type="kvm"><name>a</name><devices><emulator>/qemu</emulator></devices></domain>`

// folder is that of the sockets of a VM with so many sidecars.
func folder(t *testing.T, sidecars int) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hooks") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for n := range sidecars {
		if err := os.Mkdir(filepath.Join(dir, vmspec.HookName(n)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// vm is the record of a VM with sidecars.
func vm(dir string, sidecars int) record.Container {
	r := record.Container{ID: "c"}
	r.Spec.Hooks = &vmspec.Hooks{Folder: dir, Sidecars: sidecars}
	r.Sandbox.Value = &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "virt-launcher-a-b", Namespace: "default"},
		Labels:   map[string]string{kubevirt.CreatedByLabel: "u"},
		Annotations: map[string]string{
			kubevirt.DomainAnnotation: "a", "for.hooks/x": "y",
			vmspec.AnnotationVMI: `{"domain": {"devices": {}}, "hostname": "h"}`,
		},
	}
	return r
}

// serve starts a sidecar.
func serve(t *testing.T, dir string, n int, s hooksidecar.Sidecar) {
	t.Helper()
	listen(t, filepath.Join(dir, vmspec.HookName(n), "x.sock"), s)
}

func listen(t *testing.T, socket string, s hooksidecar.Sidecar) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := hooksidecar.New(s)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
}

func points(priority int32, names ...string) []*wire.HookPoint {
	var all []*wire.HookPoint
	for _, name := range names {
		all = append(all, &wire.HookPoint{Name: name, Priority: priority})
	}
	return all
}

// titled is a sidecar that appends to the domain's title.
func titled(text string, priority int32) hooksidecar.Sidecar {
	return hooksidecar.Sidecar{
		Versions: []string{"v1alpha1"}, Points: points(priority, wire.OnDefineDomain),
		OnDefineDomain: func(_ context.Context, in *wire.OnDefineDomainParams) (*wire.OnDefineDomainResult, error) {
			xml := string(in.GetDomainXML())
			if strings.Contains(xml, "<title>") {
				xml = strings.Replace(xml, "</title>", text+"</title>", 1)
			} else {
				xml = strings.Replace(xml, "</domain>", "<title>"+text+"</title></domain>", 1)
			}
			return &wire.OnDefineDomainResult{DomainXML: []byte(xml)}, nil
		},
	}
}

func limits() hooks.Limits {
	return hooks.Limits{Appear: 5 * time.Second, Call: 2 * time.Second, Shutdown: time.Second}
}

func on(l hooks.Limits) *hooks.Hooks {
	return hooks.New(hooks.Options{Enabled: true, Limits: l, Logger: slog.New(slog.DiscardHandler)})
}

func wantError(t *testing.T, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v, want one with %q", err, words)
	}
}

// TestOnDefineDomain calls sidecars by their priorities, with the instance.
func TestOnDefineDomain(t *testing.T) {
	dir := folder(t, 3)
	serve(t, dir, 0, titled("c", -1))
	serve(t, dir, 1, titled("a", 7))
	last := titled("b", 7)
	last.Versions = []string{"v0", "v1alpha2", "v1alpha3"}
	var got kubevirt.VirtualMachineInstance
	answer := last.OnDefineDomain
	last.OnDefineDomain = func(ctx context.Context, in *wire.OnDefineDomainParams) (*wire.OnDefineDomainResult, error) {
		if err := json.Unmarshal(in.GetVmi(), &got); err != nil {
			t.Error(err)
		}
		return answer(ctx, in)
	}
	serve(t, dir, 2, last)
	h, r := on(limits()), vm(dir, 3)
	if err := h.Await(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	xml, err := h.OnDefineDomain(t.Context(), r, domain)
	if err != nil || !strings.Contains(xml, "<title>abc</title>") {
		t.Errorf("%s, %v", xml, err)
	}
	_, private := got.Annotations[vmspec.AnnotationVMI]
	if got.Kind != "VirtualMachineInstance" || got.Name != "a" || got.Namespace != "default" || got.UID != "u" ||
		got.Annotations["for.hooks/x"] != "y" || private || got.Spec.Hostname != "h" {
		t.Errorf("the instance is %+v", got)
	}
}

// TestSuite runs the suite that the fake passes, too.
func TestSuite(t *testing.T) {
	dir := folder(t, 1)
	serve(t, dir, 0, titled("hooked", 0))
	vmtest.TestHooks(t, on(limits()), vm(dir, 1))
}

// TestNone: a VM without sidecars, a node that allows none, and hooks that no sidecar has.
func TestNone(t *testing.T) {
	var without record.Container
	h := on(limits())
	if xml, err := h.OnDefineDomain(t.Context(), without, domain); xml != domain || err != nil {
		t.Error(xml, err)
	}
	off := hooks.New(hooks.Options{Limits: limits(), Logger: slog.New(slog.DiscardHandler)})
	if err := off.Await(t.Context(), without); err != nil {
		t.Error(err)
	}
	dir := folder(t, 1)
	if err := off.Await(t.Context(), vm(dir, 1)); !errors.Is(err, hooks.ErrOff) {
		t.Error(err)
	}
	s := titled("a", 0)
	s.Points = points(0, wire.PreCloudInitIso, wire.Shutdown, "Nonsense") // of later versions than its own
	serve(t, dir, 0, s)
	if xml, err := h.OnDefineDomain(t.Context(), vm(dir, 1), domain); xml != domain || err != nil {
		t.Error(xml, err)
	}
	seed := vmspec.Seed{UserData: "u"}
	if got, err := h.PreCloudInitIso(t.Context(), vm(dir, 1), vmspec.SourceSeed, seed); got.UserData != "u" || err != nil {
		t.Error(got, err)
	}
	h.Shutdown(t.Context(), vm(dir, 1))
}

// TestLate: a sidecar may start to listen after the VM is created.
func TestLate(t *testing.T) {
	dir := folder(t, 1)
	time.AfterFunc(300*time.Millisecond, func() { serve(t, dir, 0, titled("late", 0)) })
	if err := on(limits()).Await(t.Context(), vm(dir, 1)); err != nil {
		t.Error(err)
	}
}

// TestHostile: what a sidecar may not answer.
func TestHostile(t *testing.T) {
	for name, tt := range map[string]struct {
		change  func(*hooksidecar.Sidecar)
		reply   string
		refused string // path in the domain
		words   string
	}{
		"a device":   {reply: strings.Replace(domain, "</devices>", "<hostdev/></devices>", 1), refused: "devices/hostdev"},
		"a program":  {reply: strings.Replace(domain, "/qemu", "/bin/sh", 1), refused: "devices/emulator/."},
		"no domain":  {reply: "no XML", words: "parse the hook's domain"},
		"nothing":    {words: "parse the hook's domain"},
		"too much":   {reply: strings.Repeat("<a></a>", 1<<20), words: "larger than max"},
		"no version": {change: func(s *hooksidecar.Sidecar) { s.Versions = []string{"v9"} }, words: "none of the protocol's versions"},
		"an error": {change: func(s *hooksidecar.Sidecar) {
			s.Info = func(context.Context) error { return errors.New("no\n" + strings.Repeat("x", 5000)) }
		}, words: `hook sidecar hook-sidecar-0: "no\nxxx`},
		"no such hook": {change: func(s *hooksidecar.Sidecar) { s.OnDefineDomain = nil }, words: "unknown method"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, 1)
			s := titled("", 0)
			s.OnDefineDomain = func(context.Context, *wire.OnDefineDomainParams) (*wire.OnDefineDomainResult, error) {
				return &wire.OnDefineDomainResult{DomainXML: []byte(tt.reply)}, nil
			}
			if tt.change != nil {
				tt.change(&s)
			}
			serve(t, dir, 0, s)
			xml, err := on(limits()).OnDefineDomain(t.Context(), vm(dir, 1), domain)
			refused, ok := errors.AsType[*domainxml.ChangedError](err)
			if tt.refused != "" && (!ok || refused.Path != tt.refused) || xml != "" || len(err.Error()) > 1000 {
				t.Errorf("%q, %v", xml, err)
			}
			wantError(t, err, tt.words)
		})
	}
}

// TestHanging: a sidecar that accepts and does not answer, one that answers no hook, and
// one that never listens.
func TestHanging(t *testing.T) {
	short := hooks.Limits{Appear: time.Second, Call: 300 * time.Millisecond, Shutdown: 300 * time.Millisecond}
	h := on(short)
	silent := folder(t, 1)
	l, err := net.Listen("unix", filepath.Join(silent, vmspec.HookName(0), "x.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	wantError(t, h.Await(t.Context(), vm(silent, 1)), "deadline")

	deaf := folder(t, 1)
	var ended atomic.Int32
	hang := func(ctx context.Context) error {
		<-ctx.Done()
		ended.Add(1)
		return ctx.Err()
	}
	serve(t, deaf, 0, hooksidecar.Sidecar{
		Versions: []string{"v1alpha3"}, Points: points(0, wire.OnDefineDomain, wire.Shutdown), Shutdown: hang,
		OnDefineDomain: func(ctx context.Context, _ *wire.OnDefineDomainParams) (*wire.OnDefineDomainResult, error) {
			return nil, hang(ctx)
		},
	})
	// Either end may be the first to see that the time is over, in its own words.
	if _, err = h.OnDefineDomain(t.Context(), vm(deaf, 1), domain); !errors.Is(err, context.DeadlineExceeded) && status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("error %v, want one of the deadline", err)
	}
	h.Shutdown(t.Context(), vm(deaf, 1))
	wantError(t, h.Await(t.Context(), vm(folder(t, 1), 1)), "no socket is there")
	wantError(t, h.Await(t.Context(), vm(folder(t, 0), 1)), "no such file")
}

// TestLinks: links in a sidecar's folder, and in place of it, lead nowhere.
func TestLinks(t *testing.T) {
	outside := filepath.Join(folder(t, 0), "other.sock")
	var called atomic.Int32
	s := titled("x", 0)
	s.Info = func(context.Context) error { called.Add(1); return nil }
	listen(t, outside, s)
	h := on(hooks.Limits{Appear: 500 * time.Millisecond, Call: time.Minute, Shutdown: time.Second})

	link := folder(t, 1)
	must(t, os.Symlink(outside, filepath.Join(link, vmspec.HookName(0), "a.sock")))
	wantError(t, h.Await(t.Context(), vm(link, 1)), "no socket is there")

	whole := folder(t, 0)
	must(t, os.Symlink(filepath.Dir(outside), filepath.Join(whole, vmspec.HookName(0))))
	wantError(t, h.Await(t.Context(), vm(whole, 1)), "not a directory")

	top := filepath.Join(folder(t, 0), "link")
	must(t, os.Symlink(folder(t, 1), top))
	wantError(t, h.Await(t.Context(), vm(top, 1)), "not a directory")

	if called.Load() > 0 {
		t.Error("a link was followed")
	}
	// The socket beside links and other files is found.
	must(t, os.WriteFile(filepath.Join(link, vmspec.HookName(0), "b"), nil, 0o600))
	serve(t, link, 0, titled("y", 0))
	if xml, err := h.OnDefineDomain(t.Context(), vm(link, 1), domain); err != nil || !strings.Contains(xml, "<title>y") {
		t.Error(xml, err)
	}
}

// TestShutdown reaches the sidecars of the version that has it.
func TestShutdown(t *testing.T) {
	dir := folder(t, 2)
	var called atomic.Int32
	s := hooksidecar.Sidecar{
		Versions: []string{"v1alpha3"}, Points: points(0, wire.Shutdown),
		Shutdown: func(context.Context) error { called.Add(1); return nil },
	}
	serve(t, dir, 0, s)
	s.Versions = []string{"v1alpha2"}
	serve(t, dir, 1, s)
	on(limits()).Shutdown(t.Context(), vm(dir, 2))
	if got := called.Load(); got != 1 {
		t.Errorf("%d calls", got)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
