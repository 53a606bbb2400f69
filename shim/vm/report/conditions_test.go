package report_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/podstatus"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

func TestConditionsOfAVM(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Created)
	n.conditions.Update(v)
	if _, _, ok := n.writer.Of("pod-a"); ok {
		t.Error("a VM that was not started has conditions")
	}
	change(v, func(r *record.Container) { r.State = record.Running })
	n.conditions.Update(v)
	if _, _, ok := n.writer.Of("pod-a"); ok || n.conditions.Paused(v) != domain.ReasonNone {
		t.Error("a VM of which libvirtd was not asked has conditions")
	}
	n.conditions.SetState(v, domain.State{Status: domain.StatusRunning})
	f, _, _ := n.writer.Of("pod-a")
	if !f.Ready || f.Reason != condition.ReasonRunning || f.Machine.Agent != nil || n.conditions.Paused(v) != domain.ReasonNone {
		t.Errorf("running: %+v", f)
	}
	for reason, want := range map[domain.Reason]string{
		domain.ReasonUser: condition.ReasonPausedByUser, domain.ReasonIOError: condition.ReasonPausedIOError,
		domain.ReasonMigrated: condition.ReasonPausedMigration, domain.ReasonOther: condition.ReasonPausedOther,
	} {
		n.conditions.SetState(v, domain.State{Status: domain.StatusPaused, Reason: reason})
		if f, _, _ := n.writer.Of("pod-a"); f.Ready || f.Reason != want || f.Machine.Paused != want || n.conditions.Paused(v) != reason {
			t.Errorf("paused for %s: %+v", reason, f)
		}
	}
	n.conditions.SetDiskError(v, "I/O error on disk root")
	for reason, want := range map[domain.Reason]string{domain.ReasonIOError: "I/O error on disk root", domain.ReasonUser: ""} {
		n.conditions.SetState(v, domain.State{Status: domain.StatusPaused, Reason: reason})
		if f, _, _ := n.writer.Of("pod-a"); f.Message != want {
			t.Errorf("paused for %s: message %q", reason, f.Message)
		}
	}
	n.conditions.SetState(v, domain.State{Status: domain.StatusPaused, Reason: domain.ReasonShutdown}) // it is about to end
	if n.conditions.Paused(v) != domain.ReasonNone {
		t.Error("a guest that powers off is paused")
	}
	change(v, func(r *record.Container) {
		r.State, r.Reason, r.Message = record.Exited, "StartError", "no room"
	})
	n.conditions.Update(v)
	if f, _, _ := n.writer.Of("pod-a"); f.Reason != condition.ReasonStartFailed || f.Message != "no room" || f.Machine != nil {
		t.Errorf("failed: %+v", f)
	}
	change(v, func(r *record.Container) { r.Reason = "Completed" })
	n.conditions.Update(v)
	if f, _, _ := n.writer.Of("pod-a"); f.Reason != "Completed" {
		t.Errorf("ended: %+v", f)
	}
}

// TestConditionsOfAnImpairedGuest: what a guest has lost is said while it runs, and hides no reason of a pause.
func TestConditionsOfAnImpairedGuest(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	n.conditions.SetImpaired(v, "it has no TPM") // as a shim that starts finds, before libvirtd answers
	n.conditions.SetState(v, domain.State{Status: domain.StatusRunning})
	if f, _, _ := n.writer.Of("pod-a"); !f.Ready || f.Message != "it has no TPM" {
		t.Errorf("running: %+v", f)
	}
	n.conditions.SetState(v, domain.State{Status: domain.StatusPaused, Reason: domain.ReasonUser})
	if f, _, _ := n.writer.Of("pod-a"); f.Ready || f.Message != "" {
		t.Errorf("paused: %+v", f)
	}
	change(v, func(r *record.Container) { r.State, r.Reason, r.Message = record.Exited, "Error", "QEMU ended" })
	n.conditions.Update(v)
	if f, _, _ := n.writer.Of("pod-a"); f.Message != "QEMU ended" {
		t.Errorf("ended: %+v", f)
	}
}

func TestConditionsOfAGuest(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	n.agents.Set(v.Record().ID, agent.State{Presence: agent.Absent})
	n.conditions.SetState(v, domain.State{Status: domain.StatusRunning})
	if f, _, _ := n.writer.Of("pod-a"); f.Machine.Agent == nil || *f.Machine.Agent {
		t.Errorf("without an agent: %+v", f.Machine)
	}
	s := agent.State{Presence: agent.Present}
	n.agents.Set(v.Record().ID, s)
	n.conditions.Update(v)
	if f, _, _ := n.writer.Of("pod-a"); f.Machine.Agent == nil || !*f.Machine.Agent || f.Machine.Guest != nil {
		t.Errorf("an agent that reported nothing: %+v", f.Machine)
	}
	s.Updated, s.Version, s.Hostname = time.Now(), "8.2", "guest"
	s.OS = &agent.OS{ID: "debian", Name: "Debian 13", Version: "13", Kernel: "6.12", Machine: "x86_64"}
	s.Interfaces = []agent.Interface{
		{Name: "eth0", MAC: "02:00:00:00:00:01", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.2/24"), netip.MustParsePrefix("fe80::1/64")}},
		{Name: "docker0", MAC: "02:42:00:00:00:01"},
	}
	n.agents.Set(v.Record().ID, s)
	n.conditions.Update(v)
	f, _, _ := n.writer.Of("pod-a")
	want := &condition.Guest{
		AgentVersion: "8.2", Hostname: "guest",
		OS:         &condition.OS{ID: "debian", PrettyName: "Debian 13", VersionID: "13", Kernel: "6.12", Machine: "x86_64"},
		Interfaces: []condition.Interface{{Card: "default", Name: "eth0", MAC: "02:00:00:00:00:01", IPs: []string{"10.0.0.2"}}},
	}
	if diff := cmp.Diff(want, f.Machine.Guest); diff != "" {
		t.Errorf("guest:\n%s", diff)
	}
	change(v, func(r *record.Container) { r.Network = nil })
	n.conditions.Update(v)
	if f, _, _ := n.writer.Of("pod-a"); len(f.Machine.Guest.Interfaces) != 0 {
		t.Errorf("a guest without cards has %+v", f.Machine.Guest.Interfaces)
	}
}

// TestConditionsOfCredentials: what the agent has set is reported while the guest runs.
func TestConditionsOfCredentials(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Running)
	n.conditions.SetState(v, domain.State{Status: domain.StatusRunning})
	if f, _, _ := n.writer.Of("pod-a"); f.Credentials != nil {
		t.Errorf("a VM without credentials: %+v", f.Credentials)
	}
	failed := podstatus.Credentials{Reason: condition.ReasonSyncFailed, Message: "no such user"}
	n.agents.SetCredentials(v.Record().ID, failed)
	n.conditions.Update(v)
	if f, _, _ := n.writer.Of("pod-a"); f.Credentials == nil || *f.Credentials != failed {
		t.Errorf("credentials %+v", f.Credentials)
	}
	change(v, func(r *record.Container) {
		r.State, r.Spec.Credentials = record.Exited, []vmspec.Credential{{}}
	})
	n.conditions.Update(v)
	if f, _, _ := n.writer.Of("pod-a"); f.Credentials == nil || f.Credentials.Reason != condition.ReasonAgentDisconnected {
		t.Errorf("after the end: %+v", f.Credentials)
	}
}

// TestConditionsOfTheLatest: an earlier container of the pod does not overwrite them.
func TestConditionsOfTheLatest(t *testing.T) {
	n := newNode(t)
	old := n.add("a", record.Exited)
	r := old.Record()
	r.ID, r.CreatedAt, r.Reason = r.ID[1:]+"b", r.CreatedAt.Add(time.Second), "Completed"
	latest := n.table.Recover(r)
	n.conditions.Update(latest)
	n.conditions.Update(old)
	if f, how, _ := n.writer.Of("pod-a"); f.Reason != "Completed" || how != "again" {
		t.Errorf("%s: %+v", how, f)
	}
}

// TestConditionsOfAPodWithoutAVM: a pod whose image has no disk says so. A VM's sidecar, and a container that the pod says is no
// VM, do not.
func TestConditionsOfAPodWithoutAVM(t *testing.T) {
	n := newNode(t)
	bare := record.Sandbox{ID: "bare", Config: n.add("a", record.Created).Record().Sandbox}
	bare.Config.Value = proto.CloneOf(bare.Config.Value)
	bare.Config.Value.Metadata.Name, bare.Config.Value.Metadata.Uid = "pod-bare", "uid-bare"
	n.table.RecoverSandbox(bare)
	noDisk := fmt.Errorf("container app: %w: %w", vmerrors.ErrNotVM, imageunpack.ErrNoDisk)
	n.conditions.RefuseContainer(bare, fmt.Errorf("container log: %w", vmerrors.ErrNotVM))
	if _, _, ok := n.writer.Of("pod-bare"); ok {
		t.Error("a container that is not the VM's by the pod's annotation is reported")
	}
	n.conditions.RefuseContainer(bare, noDisk)
	f, _, _ := n.writer.Of("pod-bare")
	if f.Reason != condition.ReasonNoVM || !f.Event || f.Ready || !strings.Contains(f.Message, "app") || !strings.Contains(f.Message, "remove the pod's runtimeClassName") {
		t.Errorf("%+v", f)
	}
	sandbox, _ := n.table.Sandbox(n.add("b", record.Created).Record().SandboxID)
	n.conditions.RefuseContainer(sandbox, noDisk)
	if f, _, ok := n.writer.Of("pod-b"); ok {
		t.Errorf("a VM's sidecar is reported: %+v", f)
	}
}

func TestConditionsOfRefusals(t *testing.T) {
	n := newNode(t)
	sandbox, _ := n.table.Sandbox(n.add("a", record.Created).Record().SandboxID)
	for _, err := range []error{vmerrors.ErrNotVM, vmerrors.ErrExists} {
		n.conditions.RefuseContainer(sandbox, err)
		if _, _, ok := n.writer.Of("pod-a"); ok {
			t.Errorf("%v is reported", err)
		}
	}
	n.conditions.RefuseContainer(sandbox, errors.New("no room"))
	want := podstatus.Facts{Reason: condition.ReasonCreateFailed, Message: "no room"}
	if f, how, ok := n.writer.Of("pod-a"); !ok || how != "" || f != want {
		t.Errorf("%q: %+v", how, f)
	}
	n.conditions.RefuseContainer(sandbox, fmt.Errorf("container a: %w: 10 %%", vmerrors.ErrUnfinished))
	if f, _, _ := n.writer.Of("pod-a"); f.Reason != condition.ReasonUnfinished {
		t.Errorf("work that goes on: %+v", f)
	}
	n.conditions.ForgetPod(sandbox.Config.Value)
	if _, _, ok := n.writer.Of("pod-a"); ok {
		t.Error("a pod that is gone has conditions")
	}
	other := sandbox
	other.ID = "unknown"
	n.conditions.RefuseContainer(other, errors.New("no room"))
	if _, _, ok := n.writer.Of("pod-a"); ok {
		t.Error("a sandbox that is gone has conditions")
	}
	n.conditions.RefusePod(sandbox.Config.Value, errors.New("no such field"))
	if f, how, _ := n.writer.Of("pod-a"); how != "refused" || f.Message != "no such field" {
		t.Errorf("%q: %+v", how, f)
	}
	at := time.Unix(100, 0)
	gone, _ := podstatus.PodOf(sandbox.Config.Value)
	n.conditions.Departed(gone, record.Ended{At: at, Reason: condition.ReasonMigrated, Message: "the guest runs on node b"})
	want = podstatus.Facts{Reason: condition.ReasonMigrated, Message: "the guest runs on node b", Since: at}
	if f, how, _ := n.writer.Of("pod-a"); how != "refused" || f != want {
		t.Errorf("%q: %+v", how, f)
	}
	static := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "static", Uid: "u"}}
	n.conditions.RefusePod(static, errors.New("x"))
	n.conditions.ForgetPod(static)
	if _, _, ok := n.writer.Of("static"); ok {
		t.Error("a pod that no API server knows has conditions")
	}
}
