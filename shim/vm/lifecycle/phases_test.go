package lifecycle_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/lifecycle"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// callOf returns the call that a phase makes. The display and devices have none.
func callOf(phase string) string {
	return map[string]string{
		"cgroup": "Groups.Create", "taps": "Network.Taps", "bridge": "Network.Apply", "dhcp": "Network.Serve",
		"console": "Consoles.Follow", "tpm": "TPMs.Start", "filesystems": "Filesystems.Start", "hooks": "Hooks.Await", "disks": "Disks.Attach", "domain": "Libvirt.Define", "tags": "Libvirt.Tagged", "start": "Libvirt.Start", "board": "Libvirt.MachineType", "firmware": "Libvirt.KeepVariables",
		"process": "Libvirt.AwaitProcess", "placement": "Groups.Add", "connect": "Network.Connect", "resume": "Libvirt.Resume",
	}[phase]
}

const displayVMI = `{"domain": {"devices": {"autoattachGraphicsDevice": true, "disks": [{"name": "root", "disk": {"bus": "virtio"}}]}},
	"volumes": [{"name": "root", "containerDisk": {"image": "example.com/vm:1"}}]}`

// withTPM are the annotations of a VM with a TPM.
func withTPM() map[string]string {
	return map[string]string{vmspec.AnnotationVMI: `{"domain": {"devices": {"tpm": {}, "disks": [{"name": "root", "disk": {"bus": "virtio"}}]}},
		"volumes": [{"name": "root", "containerDisk": {"image": "example.com/vm:1"}}]}`}
}

// withHelpers are the annotations of a VM with a TPM, a file system, a hook sidecar and a tag on its config
// drive, and its container.
func withHelpers() (map[string]string, *runtimeapi.ContainerConfig) {
	c := request(0)
	c.Mounts = []*runtimeapi.Mount{
		{ContainerPath: "/volumes/config", HostPath: "/volumes/kubernetes.io~configmap/config", Readonly: true},
		{ContainerPath: vmspec.HooksPath, HostPath: "/pods/1/volumes/kubernetes.io~empty-dir/sockets"},
	}
	return map[string]string{vmspec.AnnotationHooks: `[{"image": "a"}]`, vmspec.AnnotationVMI: `{"domain": {"devices": {"tpm": {}, "filesystems": [{"name": "config", "virtiofs": {}}],
			"disks": [{"name": "root", "disk": {"bus": "virtio"}, "tag": "system"}, {"name": "drive", "disk": {"bus": "virtio"}}]}},
		"volumes": [{"name": "root", "containerDisk": {"image": "example.com/vm:1"}}, {"name": "config", "configMap": {"name": "a"}},
			{"name": "drive", "cloudInitConfigDrive": {"userData": "#cloud-config"}}]}`}, c
}

// failPhase makes a phase fail.
func failPhase(t *testing.T, n *node, phase string) (words string) {
	t.Helper()
	if phase == "display" { // its folder can't be made
		displays := filepath.Join(n.dir, "displays")
		must(t, errors.Join(os.Remove(displays), os.Symlink(filepath.Join(n.dir, "missing"), displays)))
		return "make the display's folder"
	}
	if phase == "devices" { // the device was unplugged
		must(t, os.Remove(filepath.Join(n.dir, "dev/vfio/12")))
		return "let QEMU open pci device 0000:65:00.0"
	}
	if phase == "variables" { // another VM had them
		must(t, os.WriteFile(filepath.Join(n.dir, "state", "uefi-variables"), []byte("variablez"), 0o600))
		return "the persistent UEFI variables have changed since the container was created"
	}
	call := callOf(phase)
	if call == "" {
		t.Fatalf("this test does not know phase %s", phase)
	}
	if phase == "console" { // which the undo follows again, to its end
		n.script.FailOnce(call, errors.New(phase+" is broken"))
	} else {
		n.script.Fail(call, errors.New(phase+" is broken"))
	}
	return phase + " is broken"
}

// TestEachPhaseFails: whatever fails, all that was made is undone, and the record
// says why.
func TestEachPhaseFails(t *testing.T) {
	for _, p := range lifecycle.Phases() {
		t.Run(p.Name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				annotations, c := withHelpers()
				if p.Name == "display" { // which only root can give to another group
					annotations, c = map[string]string{vmspec.AnnotationVMI: displayVMI}, request(0)
				}
				if p.Name == "variables" || p.Name == "firmware" {
					annotations, c = n.withVariables(t)
				}
				if p.Name == "devices" {
					annotations, c = map[string]string{vmspec.AnnotationVMI: withGPU}, n.addGPU(t)
				}
				id, err := n.Create(t.Context(), n.addPod(t, "pod", annotations), c)
				must(t, err)
				n.events.Take()
				words := failPhase(t, n, p.Name)
				err = n.Start(t.Context(), id)
				wantError(t, err, `start VM container "vm" of pod default/pod: `, words)
				r := n.wantEnd(t, id, 128, "StartError", err.Error())
				if r.Unclean || r.Network != nil || r.Domain.PID != 0 || len(n.running()) > 0 {
					t.Errorf("left %v, record %+v", n.running(), r)
				}
				if got := n.events.Take(); got != "" {
					t.Errorf("events %q", got)
				}
				must(t, n.Remove(t.Context(), id))
				n.wantNothing(t)
			})
		})
	}
}

// TestPhasesFollowEachOther holds each phase in turn: no phase that needs it
// begins, and all that do not need it do.
func TestPhasesFollowEachOther(t *testing.T) {
	all := lifecycle.Phases()
	// needs is the phases that one needs, directly or not.
	needs := map[string][]string{}
	for _, p := range all { // a phase is behind those that it needs
		for _, one := range p.After {
			needs[p.Name] = append(append(needs[p.Name], one), needs[one]...)
		}
	}
	for _, held := range all {
		if callOf(held.Name) == "" || held.Name == "firmware" || held.Name == "placement" { // this VM keeps no variables, and dhcp adds to groups too
			continue
		}
		t.Run(held.Name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				annotations, c := withHelpers()
				id, err := n.Create(t.Context(), n.addPod(t, "pod", annotations), c)
				must(t, err)
				release := n.script.Hold(callOf(held.Name))
				n.script.Reset()
				done := make(chan error)
				go func() { done <- n.Start(t.Context(), id) }()
				synctest.Wait()
				calls := n.script.Calls()
				for _, p := range all {
					call := callOf(p.Name)
					if call == "" || call == "Groups.Add" || call == "Libvirt.KeepVariables" {
						continue
					}
					waits := slices.Contains(needs[p.Name], held.Name) ||
						(held.Name == "tags" || held.Name == "start") && slices.Contains(needs[p.Name], "process") // there is no process before
					if slices.Contains(calls, call) == waits {
						t.Errorf("while %s is held, %s has begun: %t", held.Name, p.Name, !waits)
					}
				}
				release()
				must(t, <-done)
			})
		})
	}
}

// undos are the calls that undo a start.
func undos() []string {
	return []string{
		"Groups.Remove", "Network.Undo", "Consoles.Finish", "Disks.Detach", "Libvirt.Destroy", "Libvirt.Undefine", "Agents.RemoveSockets",
		"TPMs.Remove", "Filesystems.Remove",
	}
}

// TestUndoIsRetried: an undo that fails keeps no other from its work, and is
// repeated until it succeeds. Only while QEMU is there, nothing that it uses is released.
func TestUndoIsRetried(t *testing.T) {
	for _, call := range undos() {
		t.Run(call, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				annotations, c := withHelpers()
				id, err := n.Create(t.Context(), n.addPod(t, "pod", annotations), c)
				must(t, err)
				n.script.Fail("Libvirt.Resume", errors.New("resume is broken"))
				n.script.Fail(call, errors.New("it is busy"))
				err = n.Start(t.Context(), id)
				wantError(t, err, "resume is broken", "undo ", "it is busy")
				if r := n.wantEnd(t, id, 128, "StartError", "it is busy"); !r.Unclean {
					t.Error("it counts as clean")
				}
				n.script.Reset()
				time.Sleep(20 * time.Second)
				if n := n.script.Count(call); n < 3 || n > 10 {
					t.Errorf("%d attempts in 20 s", n)
				}
				for _, other := range undos() {
					switch {
					case call == "Libvirt.Destroy":
						if other != call && n.script.Count(other) > 0 {
							t.Errorf("%s was called while QEMU runs", other)
						}
					case n.script.Count(other) > 0, other == "Consoles.Finish", other == "Network.Undo":
					case call == "Libvirt.Undefine" && other == "Agents.RemoveSockets":
					default:
						t.Errorf("%s was not repeated", other)
					}
				}
				if call == "Consoles.Finish" { // of which the removal drops the rest
					must(t, n.Remove(t.Context(), id))
					n.wantNothing(t)
					return
				}
				wantError(t, n.Remove(t.Context(), id), "remove VM container", "it is busy")
				n.script.Fail(call, nil)
				time.Sleep(2 * time.Minute)
				if r := n.rec(t, id); r.Unclean || len(n.running()) > 0 {
					t.Errorf("unclean %t, left %v", r.Unclean, n.running())
				}
				attempts := n.script.Count(call)
				time.Sleep(time.Hour)
				if n.script.Count(call) != attempts {
					t.Error("it is retried after it succeeded")
				}
				must(t, n.Remove(t.Context(), id))
				n.wantNothing(t)
			})
		})
	}
}

// TestUndoHangs: a part that hangs takes no time from the others.
func TestUndoHangs(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.created(t, "pod")
		n.script.Fail("Libvirt.Resume", errors.New("resume is broken"))
		n.script.Hang("Network.Undo")
		begun := time.Now()
		wantError(t, n.Start(t.Context(), id), "undo taps: ", "it took more than 10s")
		if took := time.Since(begun); took != 10*time.Second {
			t.Errorf("it took %s", took)
		}
		if n.script.Count("Groups.Remove") != 1 || n.libvirt.Status(n.rec(t, id).Domain.UUID) != "" {
			t.Errorf("calls %v", n.script.Calls())
		}
	})
}

// TestUndoCantBeRecorded: a failed start is published although the disk is full.
func TestUndoCantBeRecorded(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.created(t, "pod")
		release := n.script.Hold("Libvirt.Resume")
		done := make(chan error)
		go func() { done <- n.Start(t.Context(), id) }()
		synctest.Wait()
		n.script.Fail("Store.PutContainer", errors.New("no space left on device"))
		release()
		wantError(t, <-done, "no space left on device")
		v, err := n.table.Find(id)
		must(t, err)
		if r := v.Record(); r.State != record.Exited || r.Reason != "StartError" {
			t.Errorf("it is %s, %q", r.State, r.Reason)
		}
		<-v.Exited()
		if n.libvirt.Status(v.Record().Domain.UUID) != domain.Status("") {
			t.Error("its domain stays")
		}
	})
}

// TestPhaseHangs: the error names what hung, and not what waited for it.
func TestPhaseHangs(t *testing.T) {
	for _, phase := range []string{"taps", "bridge", "dhcp", "disks", "domain", "start", "connect", "resume"} {
		t.Run(phase, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				id := n.created(t, "pod")
				n.script.Hang(callOf(phase))
				words := callOf(phase)
				if phase == "start" || phase == "domain" || phase == "resume" {
					words = "libvirtd is not available: no answer in time"
				}
				wantError(t, n.Start(t.Context(), id), words, "it took more than 1m40s")
				if left := n.running(); len(left) > 0 {
					t.Errorf("left %v", left)
				}
			})
		})
	}
}

// TestCallEndsBetweenPhases: the work that a phase did is not taken for a start.
func TestCallEndsBetweenPhases(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		id := n.created(t, "pod")
		release := n.script.Hold("Groups.Create")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- n.Start(ctx, id) }()
		synctest.Wait()
		cancel()
		release()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		n.wantEnd(t, id, 128, "StartError", "context canceled")
		if left := n.running(); len(left) > 0 {
			t.Errorf("left %v", left)
		}
	})
}
