package lifecycle_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/disk"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

func TestCreate(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		pod := n.addPod(t, "pod", nil)
		id, err := n.Create(t.Context(), pod, request(0))
		must(t, err)
		r := n.rec(t, id)
		if r.State != record.Created || r.SandboxID != pod || r.Domain.UID != uint32(os.Getuid()) || r.Domain.GID != r.Domain.UID {
			t.Errorf("record %+v", r)
		}
		if want := (record.Image{Tag: "example.com/disk:1", Ref: "example.com/disk@sha256:1", ID: "sha256:1"}); r.Image != want {
			t.Errorf("image %+v, want %+v", r.Image, want)
		}
		if r.Spec.Memory != 256<<20 || r.Spec.Disks[0].Mode != vmspec.ModeFile || r.Disks["disk"].Image == nil {
			t.Errorf("spec %+v of disks %+v", r.Spec, r.Disks)
		}
		if r.LogPath != filepath.Join(n.dir, "containers", id, "console.log") {
			t.Errorf("log %s", r.LogPath)
		}
		if got := n.events.Take(); got != "created" {
			t.Errorf("events %q", got)
		}
		if !n.Has(id[:10]) || n.Has("x") {
			t.Error("Has does not know the container")
		}
		if _, err := n.Create(t.Context(), pod, request(0)); !errors.Is(err, vmerrors.ErrExists) {
			t.Errorf("the same container again: %v", err)
		}
		must(t, n.RemoveIn(t.Context(), pod))
		n.wantNothing(t)
	})
}

// TestRemoveBeforeTheStart: the cgroup that the conversion of a disk has made goes with a VM that never started, however
// it is removed.
func TestRemoveBeforeTheStart(t *testing.T) {
	for name, remove := range map[string]func(t *testing.T, n *node, pod, id string){
		"removed": func(t *testing.T, n *node, _, id string) { must(t, n.Remove(t.Context(), id)) },
		"its pod": func(t *testing.T, n *node, pod, _ string) { must(t, n.RemoveIn(t.Context(), pod)) },
		"superseded": func(t *testing.T, n *node, pod, _ string) {
			n.disks.Converts = nil
			id, err := n.Create(t.Context(), pod, request(1))
			must(t, err)
			must(t, n.Remove(t.Context(), id))
		},
		"by the next shim": func(t *testing.T, n *node, pod, _ string) {
			n.restart(t)
			must(t, n.RemoveIn(t.Context(), pod))
		},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				n.disks.Converts = func(r record.Container) error { return n.groups.Create(r) }
				pod := n.addPod(t, "pod", nil)
				id, err := n.Create(t.Context(), pod, request(0))
				must(t, err)
				if _, _, ok := n.groups.Of(id); !ok {
					t.Fatal("the conversion has made no cgroup")
				}
				remove(t, n, pod, id)
				n.wantNothing(t)
			})
		})
	}
}

func TestCreateLeavesOthersToContainerd(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		_, err := n.Create(t.Context(), "unknown", request(0))
		if !errors.Is(err, vmerrors.ErrNotVM) {
			t.Errorf("a container of another sandbox: %v", err)
		}
		named := n.addPod(t, "named", map[string]string{vmspec.AnnotationVMContainer: "vm"})
		sidecar := request(0)
		sidecar.Metadata.Name = "sidecar"
		if _, err := n.Create(t.Context(), named, sidecar); !errors.Is(err, vmerrors.ErrNotVM) {
			t.Errorf("a sidecar: %v", err)
		}
		n.script.Fail("Images.Acquire", imageunpack.ErrNoDisk)
		if _, err := n.Create(t.Context(), n.addPod(t, "plain", nil), request(0)); !errors.Is(err, vmerrors.ErrNotVM) {
			t.Errorf("an image without a disk: %v", err)
		}
		if _, err := n.Create(t.Context(), named, request(0)); !errors.Is(err, vmerrors.ErrInvalid) {
			t.Errorf("a VM's image without a disk: %v", err)
		}
		n.wantNothing(t)
	})
}

// TestCreateFails has each part fail in turn: nothing stays, and the pod's
// condition says why.
func TestCreateFails(t *testing.T) {
	full := errors.New("no space left on device")
	for _, c := range []struct {
		call  string
		err   error
		kind  error
		words string
	}{
		{"Images.Acquire", imageunpack.ErrUnusable, vmerrors.ErrInvalid, `container "vm" of image "example.com/vm:1"`},
		{"Images.Acquire", full, full, `container "vm" of image "example.com/vm:1"`},
		{"Images.ImageStatus", full, full, "ask containerd for image sha256:1"},
		{"Disks.Acquire", disk.ErrUnknown, vmerrors.ErrInvalid, `container "vm"`},
		{"Disks.Acquire", full, full, `container "vm"`},
		{"Store.PutContainer", full, full, `container "vm"`},
		{"Disks.Create", disk.ErrVolume, vmerrors.ErrInvalid, `container "vm"`},
		{"Disks.Create", full, full, `container "vm"`},
	} {
		onNode(t, func(t *testing.T, n *node) {
			pod := n.addPod(t, "pod", nil)
			n.script.Fail(c.call, c.err)
			_, err := n.Create(t.Context(), pod, request(0))
			if !errors.Is(err, c.kind) || !errors.Is(err, c.err) {
				t.Errorf("%s fails with %v: %v", c.call, c.err, err)
			}
			wantError(t, err, c.words)
			if refused := n.conditions.Refused(); len(refused) != 1 || !errors.Is(refused[0], c.err) {
				t.Errorf("%s: the pod's condition says %v", c.call, refused)
			}
			if got := n.events.Take(); got != "" {
				t.Errorf("%s: events %q", c.call, got)
			}
			n.wantNothing(t)
			n.script.Fail(c.call, nil)
			_, err = n.Create(t.Context(), pod, request(0))
			must(t, err) // its name and its user are free
		})
	}
}

func TestCreateRefusesSettings(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		pod := n.addPod(t, "pod", map[string]string{vmspec.AnnotationVMI: `{"domain": {"nonsense": 1}}`})
		_, err := n.Create(t.Context(), pod, request(0))
		if !errors.Is(err, vmerrors.ErrInvalid) {
			t.Errorf("error %v", err)
		}
		wantError(t, err, "pod default/pod", "nonsense")
		n.wantNothing(t)
	})
}

// TestReleaseIsRetried: containerd goes away while a container is made.
// TestCreateWithoutMetadata: the next shim could not use the record of such a container.
func TestCreateWithoutMetadata(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		unnamed := request(0)
		unnamed.Metadata = nil
		for what, config := range map[string]*runtimeapi.ContainerConfig{"metadata": unnamed, "config": nil} {
			if _, err := n.Create(t.Context(), n.addPod(t, "without-"+what, nil), config); !errors.Is(err, vmerrors.ErrInvalid) {
				t.Errorf("without %s: %v", what, err)
			}
		}
		n.wantNothing(t)
	})
}

func TestReleaseIsRetried(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		away := errors.New("containerd is away")
		n.script.Fail("Images.Acquire", away)
		n.script.Fail("Disks.Release", away)
		_, err := n.Create(t.Context(), n.addPod(t, "pod", nil), request(0))
		wantError(t, err, "containerd is away")
		time.Sleep(10 * time.Second)
		if len(n.images.Left()) != 1 || n.script.Count("Disks.Release") < 10 {
			t.Errorf("held %v after %d attempts", n.images.Left(), n.script.Count("Disks.Release"))
		}
		n.script.Fail("Disks.Release", nil)
		time.Sleep(2 * time.Second)
		n.wantNothing(t)
	})
}

func TestCreateFindsCDs(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		n.disks.CD = true
		if d := n.rec(t, n.created(t, "pod")).Spec.Disks[0]; !d.CDROM {
			t.Errorf("the disk of a CD's image is %+v", d)
		}
	})
}

const kernelVMI = `{"domain": {
	"resources": {"limits": {"memory": "256Mi"}},
	"firmware": {"kernelBoot": {"container": {"kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd"}}},
	"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}]}},
	"volumes": [{"name": "root", "containerDisk": {"image": "example.com/vm:1"}}]}`

func TestCreateCopiesTheKernel(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		pod := n.addPod(t, "pod", map[string]string{vmspec.AnnotationVMI: kernelVMI})
		n.script.Fail("Images.Open", imageunpack.ErrUnusable)
		_, err := n.Create(t.Context(), pod, request(0))
		if !errors.Is(err, vmerrors.ErrInvalid) {
			t.Errorf("a kernel that can't be read: %v", err)
		}
		wantError(t, err, "spec.domain.firmware.kernelBoot.container.kernelPath")
		n.wantNothing(t)
		n.script.Fail("Images.Open", nil)
		_, err = n.Create(t.Context(), pod, request(0))
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a kernel that is missing: %v", err)
		}
		for _, name := range []string{"vmlinuz", "initrd"} {
			must(t, os.WriteFile(filepath.Join(n.dir, name), []byte(name), 0o600))
		}
		id, err := n.Create(t.Context(), pod, request(0))
		if os.Getuid() != 0 && os.Getgid() != os.Getuid() {
			wantError(t, err, "to the VM's user") // a user may not give files to another group
			return
		}
		must(t, err)
		for name, want := range map[string]string{"kernel": "vmlinuz", "initrd": "initrd"} {
			if got, err := os.ReadFile(filepath.Join(n.store.ContainerDir(id), name)); err != nil || string(got) != want {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
		must(t, n.Start(t.Context(), id))
		must(t, n.Remove(t.Context(), id))
		n.wantNothing(t)
	})
}

func TestSupersede(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		pod := n.addPod(t, "pod", nil)
		first, err := n.Create(t.Context(), pod, request(0))
		must(t, err)
		n.script.Fail("Disks.Remove", errors.New("busy"))
		_, err = n.Create(t.Context(), pod, request(1))
		wantError(t, err, "remove VM container", "which an earlier attempt has made: busy")
		n.script.Fail("Disks.Remove", nil)
		n.events.Take()
		second, err := n.Create(t.Context(), pod, request(1))
		must(t, err)
		if n.Has(first) || !n.Has(second) {
			t.Error("the new attempt did not replace the old one")
		}
		if got := n.events.Take(); got != "deleted created" {
			t.Errorf("events %q", got)
		}
		// An attempt that was started is not replaced.
		must(t, n.Start(t.Context(), second))
		if _, err := n.Create(t.Context(), pod, request(2)); !errors.Is(err, vmerrors.ErrExists) {
			t.Errorf("beside a VM that runs: %v", err)
		}
		must(t, n.StopIn(t.Context(), pod))
		third, err := n.Create(t.Context(), pod, request(2))
		must(t, err)
		if !n.Has(second) {
			t.Error("a container that has ended was removed")
		}
		must(t, n.Remove(t.Context(), second))
		must(t, n.Remove(t.Context(), third))
		n.wantNothing(t)
	})
}

// TestUsersRunOut: each VM has a different user.
func TestUsersRunOut(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		for _, pod := range []string{"a", "b", "c"} {
			n.created(t, pod)
		}
		_, err := n.Create(t.Context(), n.addPod(t, "d", nil), request(0))
		wantError(t, err, "all 3 user ids for VMs are taken: widen vm.uid_count")
		if len(n.images.Left()) != 3 {
			t.Errorf("held %v", n.images.Left())
		}
	})
}
