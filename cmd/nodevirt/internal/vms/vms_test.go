package vms

import (
	"bytes"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/golden"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vminfo"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

func now() time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) }

func running() VM {
	spec := vmspec.Spec{
		CPU: vmspec.CPU{Sockets: 2, Cores: 1, Threads: 1}, Memory: 512 << 20, Machine: "q35",
		Disks: []vmspec.Disk{
			{Name: "disk", Source: vmspec.SourceImage, Bus: vmspec.BusVirtio},
			{Name: "cloudinit", Source: vmspec.SourceSeed, Bus: vmspec.BusVirtio},
		},
		Interfaces: []vmspec.Interface{{Name: "default", Model: "virtio"}},
		Seed:       &vmspec.Seed{UserData: "password: hunter2"},
	}
	return VM{
		Pod: &runtimeapi.PodSandbox{
			Id: strings.Repeat("b", 64), Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default"},
		},
		Status: &runtimeapi.ContainerStatus{
			Id: strings.Repeat("a", 64), State: runtimeapi.ContainerState_CONTAINER_RUNNING,
			Image: &runtimeapi.ImageSpec{Image: "example.com/disks/debian:12"}, ImageId: "sha256:1234",
			CreatedAt: now().Add(-2 * time.Hour).UnixNano(), StartedAt: now().Add(-90 * time.Minute).UnixNano(),
			LogPath: "/var/log/pods/web/vm_0.log",
		},
		PID: 4711,
		Info: vminfo.VM{
			Domain:    record.Domain{Name: "default_web_aaaaaaaaaaaa", UUID: "some-uuid", UID: 1900000000},
			DomainXML: "<domain></domain>", Accelerator: "kvm", Spec: spec,
			Disks: []vminfo.Disk{{
				Name: "disk", Mode: vmspec.ModeFile,
				Image: &imageunpack.Disk{Path: "/disk/disk.qcow2", Format: imageunpack.QCOW2, VirtualSize: 10 << 30, Size: 400 << 20},
				Path:  "/var/lib/nodevirt/disk.qcow2", Format: "qcow2", Allocated: 196 << 10,
			}, {Name: "cloudinit", Path: "/var/lib/nodevirt/seed.iso", Format: "raw", Allocated: 366 << 10}},
			Network: &netsetup.Plan{NICs: []netsetup.NIC{{
				Card: "default",
				Tap:  "nvaaaa", MTU: 1400, GuestMAC: []byte{2, 0, 0, 0, 0, 1},
				IPv4: netsetup.Addressing{
					Address: netip.MustParsePrefix("10.244.1.2/24"), Gateway: netip.MustParseAddr("10.244.1.1"),
				},
			}}},
			Agent: &agent.State{
				Presence: agent.Present, Version: "7.2.0", Hostname: "web\x1b[2J",
				OS: &agent.OS{Name: "Debian GNU/Linux", Version: "12 (bookworm)", Kernel: "6.1.0-30-cloud-amd64"},
			},
			ConsoleSocket: "/run/nodevirt/consoles/a.sock",
			TraceID:       "0123456789abcdef0123456789abcdef",
			Timeline: []record.Phase{
				{Name: record.PhaseSandbox, Begun: now().Add(-91 * time.Minute), Took: 412*time.Millisecond + 345*time.Microsecond},
				{Name: record.PhaseFiles, Begun: now().Add(-91*time.Minute + 2*time.Second), Took: 300 * time.Microsecond},
				{Name: record.PhaseResume, Begun: now().Add(-90 * time.Minute), Took: 8 * time.Millisecond},
				{Name: record.PhaseAgent, Begun: now().Add(-90*time.Minute + 8*time.Millisecond), Took: 12500 * time.Millisecond},
			},
		},
	}
}

// ended is another VM, of a pod of the same name; its image's name is a stranger's.
func ended() VM {
	v := running()
	v.Pod = &runtimeapi.PodSandbox{
		Id: strings.Repeat("d", 64), Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop"},
	}
	v.Status = &runtimeapi.ContainerStatus{
		Id: strings.Repeat("c", 64), State: runtimeapi.ContainerState_CONTAINER_EXITED,
		Image:     &runtimeapi.ImageSpec{Image: "evil\x1b[2J:1"},
		CreatedAt: now().Add(-50 * time.Hour).UnixNano(), StartedAt: now().Add(-50 * time.Hour).UnixNano(),
		FinishedAt: now().Add(-49 * time.Hour).UnixNano(), ExitCode: 137, Reason: "Error", Message: "the VM was powered off",
	}
	v.PID, v.Info.Network, v.Info.Agent, v.Info.DomainXML, v.Info.Timeline, v.Info.TraceID = 0, nil, nil, "", nil, ""
	return v
}

func TestOutput(t *testing.T) {
	var ps, table, after, text, phases bytes.Buffer
	for _, err := range []error{
		cli.Table(&ps, rows([]VM{running(), ended()}, now())),
		describe(&table, detail(running(), now())),
		describe(&after, detail(ended(), now())),
		cli.JSON(&text, details([]VM{running(), ended()}, now())),
		showTimeline(&phases, detail(running(), now())),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(text.String()+table.String(), "hunter2") {
		t.Error("a secret of the seed is shown")
	}
	golden.Assert(t, ps.String(), "ps.txt")
	golden.Assert(t, table.String(), "inspect.txt")
	golden.Assert(t, after.String(), "inspect-ended.txt")
	golden.Assert(t, text.String(), "ps.json")
	golden.Assert(t, phases.String(), "timeline.txt")
	if err := showTimeline(&phases, detail(ended(), now())); err == nil || !strings.Contains(err.Error(), "which recorded none") {
		t.Errorf("the timeline of a VM without one: %v", err)
	}
	sick := running()
	sick.Err = errors.New("no answer")
	if err := showTimeline(&phases, detail(sick, now())); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("the timeline of a VM without details: %v", err)
	}
}

func TestChoose(t *testing.T) {
	all := []VM{running(), ended()}
	twin := running()
	twin.Pod = ended().Pod
	for _, c := range []struct {
		all        []VM
		want, err  string
		wantNspace string
	}{
		{all, "web", "", "default"}, // the one that runs
		{all, "shop/web", "", "shop"},
		{all, "ccc", "", "shop"},
		{all, "dddd", "", "shop"},
		{all, "default_web_aaaaaaaaaaaa", "", "default"},
		{all, "cc", `find VM "cc": not on this node`, ""},
		{all, "", `find VM "": not on this node`, ""},
		{[]VM{running(), twin}, "web", `find VM "web": matches several VMs: default/web (aaaaaaaaaaaaa), shop/web`, ""},
	} {
		v, err := choose(c.all, c.want)
		switch {
		case c.err == "" && (err != nil || v.Namespace() != c.wantNspace):
			t.Errorf("%q: %v, %v", c.want, v.Pod, err)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%q: %v, not %q", c.want, err, c.err)
		}
	}
}

func TestOnlyAPodsOwnLogsAreRemoved(t *testing.T) {
	m := &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "default", Uid: "u"}
	own, other := filepath.Join(t.TempDir(), "default_web_u"), t.TempDir()
	for _, dir := range []string{own, other} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "vm_0.log"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := removeLogs(&runtimeapi.PodSandboxConfig{Metadata: m, LogDirectory: dir}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(own); !os.IsNotExist(err) {
		t.Errorf("the pod's logs are still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(other, "vm_0.log")); err != nil {
		t.Errorf("another folder's log is gone: %v", err)
	}
}
