package lifecycle_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/checkpoint"
	"github.com/nodevirt/nodevirt/shim/migrate/compat"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// saved is a checkpoint of a VM of a node.
type saved struct {
	manifest checkpoint.Manifest
	disk     string // the file of its disk
	grown    int64  // added to the file's size in the manifest
	stored   int64  // added to the compressed file's size there
	memory   []byte // QEMU's stream; nil for one whose RAM is not shared
}

// masqueradeVMI is a VM with a separate address behind its pod's.
const masqueradeVMI = `{"domain": {"devices": {
	"disks": [{"name": "disk", "disk": {"bus": "virtio"}}], "interfaces": [{"name": "default", "masquerade": {}}]}},
	"networks": [{"name": "default", "pod": {}}], "volumes": [{"name": "disk", "containerDisk": {"image": "example.com/vm:1"}}]}`

func (n *node) masqueraded(t *testing.T, pod string) (id string) {
	t.Helper()
	return n.addPod(t, pod, map[string]string{vmspec.AnnotationVMI: masqueradeVMI})
}

// saved makes a checkpoint of a VM that runs, as package save does.
func (n *node) saved(t *testing.T) saved {
	t.Helper()
	n.disks.Files = map[string]string{"disk": filepath.Join(n.dir, "written.qcow2")}
	u := imageunpack.New(nil, imageunpack.Options{MaxDiskSize: 1 << 40})
	assert.NilError(t, u.Overlay(imageunpack.Disk{ImageID: "sha256:1", VirtualSize: 1 << 30, Format: imageunpack.QCOW2}, n.disks.Files["disk"]))
	id, err := n.Create(t.Context(), n.masqueraded(t, "saved"), request(0))
	assert.NilError(t, err)
	assert.NilError(t, n.Start(t.Context(), id))
	r := n.rec(t, id)
	devices, err := compat.Outline(n.libvirt.XML(r.Domain.UUID))
	assert.NilError(t, err)
	shape, err := json.Marshal(compat.Shape{Machine: "pc-q35-7.2", CPU: compat.CPU{Mode: "maximum"}})
	assert.NilError(t, err)
	image := r.Disks["disk"].Image
	return saved{disk: n.disks.Files["disk"], manifest: checkpoint.Manifest{
		CreatedAt: time.Now(), Image: "1", Accelerator: "tcg", Shape: shape, Devices: devices,
		Bases: map[string]checkpoint.Base{"disk": {Image: image.ImageID, Path: image.Path, SHA256: strings.Repeat("0", 64)}},
	}}
}

// archive writes the checkpoint.
func (s saved) archive(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "checkpoint.tar")
	f, err := os.Create(path)
	assert.NilError(t, err)
	defer f.Close()
	w := checkpoint.NewWriter(f)
	m := s.manifest
	if s.memory == nil {
		s.memory = []byte("the guest's memory")
	}
	m.Memory, err = w.AddMemory(bytes.NewReader(s.memory))
	assert.NilError(t, err)
	from, err := os.Open(s.disk)
	assert.NilError(t, err)
	defer from.Close()
	d, err := w.AddDisk("disk", from)
	assert.NilError(t, err)
	d.Size += s.grown
	d.Stored += s.stored
	m.Disks = []checkpoint.Disk{d}
	assert.NilError(t, w.Close(m))
	return path
}

// resumes creates a container of a checkpoint.
func (n *node) resumes(t *testing.T, image string) (id string, err error) {
	t.Helper()
	config := request(0)
	config.Image.Image = image
	return n.Create(t.Context(), n.masqueraded(t, "resumed"), config)
}

func TestResume(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		path := n.saved(t).archive(t)
		want, err := os.ReadFile(n.disks.Files["disk"])
		must(t, err)
		n.disks.Files["disk"] = filepath.Join(n.dir, "new.qcow2")
		must(t, os.WriteFile(n.disks.Files["disk"], []byte("a new disk"), 0o600))
		id, err := n.resumes(t, path)
		must(t, err)
		r := n.rec(t, id)
		if r.Restored == nil || r.Image.ID != "sha256:1" {
			t.Errorf("record of image %+v, checkpoint %+v", r.Image, r.Restored)
		}
		got, err := os.ReadFile(n.disks.Files["disk"])
		must(t, err)
		if string(got) != string(want) {
			t.Errorf("the disk has %d bytes, and had %d", len(got), len(want))
		}
		info, err := os.Stat(n.layout.MemoryFile(id))
		must(t, err)
		if info.Mode() != 0o600 {
			t.Errorf("memory's mode is %v", info.Mode())
		}
		must(t, os.Remove(path)) // nothing needs it any more
		n.restart(t)
		must(t, n.Start(t.Context(), id))
		if got := n.libvirt.Restored(r.Domain.UUID); got != "the guest's memory" {
			t.Errorf("the guest has %q", got)
		}
		if text := n.libvirt.XML(r.Domain.UUID); !strings.Contains(text, "pc-q35-7.2") {
			t.Errorf("the domain has not the machine of the saved one:\n%s", text)
		}
		if _, err := os.Stat(n.layout.MemoryFile(id)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the memory is still there: %v", err)
		}
		if got := n.libvirt.Status(r.Domain.UUID); got != "running" {
			t.Errorf("the guest is %s", got)
		}
	})
}

// pcStream is QEMU's stream of a guest with RAM of so many bytes, of which it wrote a page.
func pcStream(ram int64) []byte {
	var b bytes.Buffer
	for _, one := range []any{
		[]byte("QEVM"), uint32(3), byte(1), uint32(2), []byte("\x03ram"), uint32(0), uint32(4),
		ram | 4, []byte("\x06pc.ram"), ram, uint64(0x10),
		byte(3), uint32(2), uint64(0x08), []byte("\x06pc.ram"), bytes.Repeat([]byte("p"), 4096), uint64(0x10),
		byte(4), []byte("devices"),
	} {
		_ = binary.Write(&b, binary.BigEndian, one)
	}
	return b.Bytes()
}

// TestFork: VMs from the same checkpoint have one file of memory, and get its RAM by a socket. A VM whose RAM must
// be its own gets the whole stream.
func TestFork(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.saved(t)
		ram := n.table.All("")[0].Record().Spec.Memory
		s.memory = pcStream(ram)
		path := s.archive(t)
		var infos []os.FileInfo
		for range 2 {
			n.disks.Files["disk"] = filepath.Join(n.dir, "new.qcow2")
			must(t, os.WriteFile(n.disks.Files["disk"], nil, 0o600))
			id, err := n.resumes(t, path)
			must(t, err)
			info, err := os.Stat(n.layout.MemoryFile(id))
			must(t, err)
			infos = append(infos, info)
			must(t, n.Start(t.Context(), id))
			uuid := n.rec(t, id).Domain.UUID
			if got := n.libvirt.Restored(uuid); !strings.HasSuffix(got, "\x04devices") || strings.Contains(got, "pp") {
				t.Errorf("QEMU reads %q", got)
			}
			if text := n.libvirt.XML(uuid); !strings.Contains(text, n.layout.RAMSocket(id)) {
				t.Errorf("QEMU does not know where its RAM is:\n%s", text)
			}
			if _, err := os.Stat(n.layout.RAMSocket(id)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the socket is still there: %v", err)
			}
			must(t, n.RemoveIn(t.Context(), n.rec(t, id).SandboxID))
		}
		if !os.SameFile(infos[0], infos[1]) {
			t.Error("each has its own file of memory")
		}
	})
}

// TestIdentity: a fork's guest with an agent renews its identity before the start returns. Without an agent or a
// program it keeps that of the checkpoint; if the program fails the fork does not start.
func TestIdentity(t *testing.T) {
	for name, tt := range map[string]struct {
		agent  bool
		set    func(n *node)
		reason string // empty if the start fails
		words  string
	}{
		"renewed":  {true, func(*node) {}, condition.ReasonRenewed, ""},
		"no agent": {false, func(*node) {}, condition.ReasonNoAgent, "save it once the agent runs"},
		"no hook": {true, func(n *node) { n.script.Fail("Agents.Run", fmt.Errorf("%w: not found", agent.ErrNoProgram)) },
			condition.ReasonNoHook, "add an executable /etc/nodevirt/fork"},
		"exec is off": {true, func(n *node) { n.script.Fail("Agents.Run", agent.ErrDisabled) }, condition.ReasonUnsupportedAgent, "does not allow"},
		"code 1": {true, func(n *node) { n.agents.SetResult(agent.Result{Code: 1, Stderr: []byte("no\x01 keys\n")}) },
			"", `ended with code 1: "no\x01 keys"`},
		"silent":   {true, func(n *node) { n.script.Fail("Agents.Run", agent.ErrSilent) }, "", "does not answer"},
		"too slow": {true, func(n *node) { n.script.Hang("Agents.Run") }, "", "/etc/nodevirt/fork"},
	} {
		t.Run(name, func(t *testing.T) {
			onNode(t, func(t *testing.T, n *node) {
				s := n.saved(t)
				s.manifest.Agent = tt.agent
				id, err := n.resumes(t, s.archive(t))
				must(t, err)
				tt.set(n)
				err = n.Start(t.Context(), id)
				r := n.rec(t, id)
				if tt.reason == "" {
					wantError(t, err, "identity", tt.words)
					n.wantEnd(t, id, 128, "StartError", tt.words)
					return
				}
				must(t, err)
				if r.Fork == nil || r.Fork.Reason != tt.reason || !strings.Contains(r.Fork.Message, tt.words) {
					t.Errorf("record has %+v", r.Fork)
				}
				if got := len(n.agents.Ran()) > 0; got != tt.agent {
					t.Errorf("the program ran: %t", got)
				}
			})
		})
	}
	onNode(t, func(t *testing.T, n *node) {
		s := n.saved(t)
		s.manifest.Agent = true
		id, err := n.resumes(t, s.archive(t))
		must(t, err)
		must(t, n.Start(t.Context(), id))
		r := n.rec(t, id)
		c := n.agents.Ran()[0]
		want := []string{"/etc/nodevirt/fork", "HOSTNAME=resumed", "INSTANCE_ID=resumed.default", "MACHINE_ID=" + strings.ReplaceAll(r.Domain.UUID, "-", "")}
		if diff := cmp.Diff(want, c.Args[:4]); diff != "" || len(c.Input) != 64 {
			t.Errorf("%d bytes of input, %s", len(c.Input), diff)
		}
		at := func(name string) int {
			return slices.IndexFunc(r.Timeline, func(p record.Phase) bool { return p.Name == name })
		}
		if resumed := at(record.PhaseResume); resumed < 0 || at(record.PhaseIdentity) < resumed { // phases beside them may end later
			t.Errorf("the timeline has %+v", r.Timeline)
		}
		if text := n.libvirt.XML(r.Domain.UUID); strings.Contains(text, "<genid") {
			t.Error("a guest whose checkpoint has no VM generation ID got one")
		}
		must(t, n.RemoveIn(t.Context(), r.SandboxID))
		s.manifest.Shape = json.RawMessage(`{"machine": "pc-q35-7.2", "cpu": {"mode": "maximum"}, "generation": "7d1c0f5a-6d5e-4d0e-8a4c-2f9d1b6a0001"}`)
		id, err = n.resumes(t, s.archive(t))
		must(t, err)
		must(t, n.Start(t.Context(), id))
		uuid := n.rec(t, id).Domain.UUID
		if text := n.libvirt.XML(uuid); !strings.Contains(text, "<genid>"+uuid+"</genid>") {
			t.Errorf("the guest has not its own VM generation ID:\n%s", text)
		}
	})
}

// TestResumeFromImage: an image with the files of a checkpoint is one.
func TestResumeFromImage(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		a, err := checkpoint.OpenArchive(n.saved(t).archive(t))
		must(t, err)
		defer func() { _ = a.Close() }()
		for _, name := range []string{checkpoint.ManifestName, "nodevirt-memory.zst", "nodevirt-disk-disk.zst"} {
			f, err := a.Open(name)
			must(t, err)
			to, err := os.Create(filepath.Join(n.images.Folder, name))
			must(t, err)
			_, err = to.ReadFrom(f)
			must(t, errors.Join(err, to.Close()))
		}
		id, err := n.resumes(t, "1")
		must(t, err)
		must(t, n.Start(t.Context(), id))
		if got := n.libvirt.Restored(n.rec(t, id).Domain.UUID); got != "the guest's memory" {
			t.Errorf("the guest has %q", got)
		}
		// The guest of a migration comes from its source.
		coming := n.addPod(t, "coming", map[string]string{"nodevirt.io/migration": "0d2c5a5e-0000-4000-8000-000000000001"})
		id, err = n.Create(t.Context(), coming, request(0))
		must(t, err)
		if r := n.rec(t, id); r.Restored != nil {
			t.Error("the guest of a migration goes on from a checkpoint")
		}
	})
}

// TestResumeRefused: what was not saved from a VM like this one is refused, and nothing is left of it.
func TestResumeRefused(t *testing.T) {
	for words, change := range map[string]func(s *saved){
		"its guest ran on": func(s *saved) { s.manifest.Accelerator = "kvm" },
		"own CPU":          func(s *saved) { s.manifest.CPU = "AMD" },
		"on volumes are":   func(s *saved) { s.manifest.Volumes = []string{"claim"} },
		"UEFI firmware":    func(s *saved) { s.manifest.Firmware = &checkpoint.Firmware{Code: 1} },
		"of images":        func(s *saved) { s.manifest.Bases["more"] = s.manifest.Bases["disk"] },
		"has another one": func(s *saved) {
			s.manifest.Bases["disk"] = checkpoint.Base{Image: "sha256:2", Path: "/disk", SHA256: strings.Repeat("1", 64)}
		},
		"backing file": func(s *saved) {
			data, _ := os.ReadFile(s.disk)
			_ = os.WriteFile(s.disk, []byte(strings.Replace(string(data), "nodevirt-image:", "/etc/passwd\x00\x00\x00\x00", 1)), 0o600)
		},
		"not qcow2":             func(s *saved) { _ = os.WriteFile(s.disk, []byte("raw"), 0o600) },
		"shorter than":          func(s *saved) { s.grown = 1 },
		"more than it can have": func(s *saved) { s.grown = 2 << 30 },
	} {
		onNode(t, func(t *testing.T, n *node) {
			s := n.saved(t)
			must(t, os.WriteFile(filepath.Join(n.images.Folder, "disk.qcow2"), nil, 0o600))
			change(&s)
			path := s.archive(t)
			must(t, n.RemoveIn(t.Context(), n.table.All("")[0].Record().SandboxID))
			_, err := n.resumes(t, path)
			wantError(t, err, words)
			if !errors.Is(err, vmerrors.ErrInvalid) {
				t.Errorf("%v is no invalid request", err)
			}
			n.wantNothing(t)
		})
	}
}

// TestResumeOtherMachine: the start fails if the VM's devices are others.
func TestResumeOtherMachine(t *testing.T) {
	for words, change := range map[string]func(s *saved){
		"disk/vda is": func(s *saved) { s.manifest.Devices["disk/vda"] = "<disk/>" },
		"sound/0 is":  func(s *saved) { s.manifest.Devices["sound/0"] = "<sound/>" },
		"machine \"pc": func(s *saved) {
			s.manifest.Shape = json.RawMessage(`{"machine": "pc-i440fx-7.2", "cpu": {"mode": "maximum"}}`)
		},
		"unknown field": func(s *saved) {
			s.manifest.Shape = json.RawMessage(`{"machine": "pc-q35-7.2", "cpu": {"mode": "maximum"}, "emulator": "/bin/sh"}`)
		},
	} {
		onNode(t, func(t *testing.T, n *node) {
			s := n.saved(t)
			change(&s)
			id, err := n.resumes(t, s.archive(t))
			must(t, err)
			err = n.Start(t.Context(), id)
			wantError(t, err, words, "cannot go on from its checkpoint")
			n.wantEnd(t, id, 128, "StartError", words)
		})
	}
}

// TestOtherArchives: an archive without a checkpoint of a VM may be one of another container.
func TestOtherArchives(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		path := filepath.Join(t.TempDir(), "criu.tar")
		must(t, os.WriteFile(path, make([]byte, 1024), 0o600)) // an empty one
		if _, err := n.resumes(t, path); !errors.Is(err, vmerrors.ErrNotVM) {
			t.Errorf("a foreign archive: %v", err)
		}
		config := request(0)
		config.Image.Image = path
		_, err := n.Create(t.Context(), n.addPod(t, "named", map[string]string{vmspec.AnnotationVMContainer: "vm"}), config)
		if !errors.Is(err, vmerrors.ErrInvalid) {
			t.Errorf("a foreign archive for a VM: %v", err)
		}
		must(t, os.WriteFile(path, []byte(strings.Repeat("x", 2048)), 0o600))
		if _, err := n.resumes(t, path); !errors.Is(err, vmerrors.ErrInvalid) || !errors.Is(err, checkpoint.ErrUnusable) {
			t.Errorf("no archive: %v", err)
		}
		n.wantNothing(t)
	})
}

// TestResumeFromVolume: a guest goes on from the checkpoint in the volume that its container mounts for
// it, and a folder without one is refused.
func TestResumeFromVolume(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		path := n.saved(t).archive(t)
		config := request(0)
		config.Mounts = []*runtimeapi.Mount{{ContainerPath: vmspec.CheckpointPath, HostPath: filepath.Dir(path), Readonly: true}}
		id, err := n.Create(t.Context(), n.masqueraded(t, "resumed"), config)
		must(t, err)
		must(t, n.Start(t.Context(), id))
		if got := n.libvirt.Restored(n.rec(t, id).Domain.UUID); got != "the guest's memory" {
			t.Errorf("the guest has %q", got)
		}
		must(t, os.Remove(path))
		if n.rec(t, id).Fork != nil || len(n.agents.Ran()) > 0 {
			t.Error("a restored VM is no fork, and keeps its identity")
		}
		_, err = n.Create(t.Context(), n.masqueraded(t, "empty"), config)
		if err == nil || !strings.Contains(err.Error(), "open the archive") {
			t.Errorf("without an archive: %v", err)
		}
	})
}

// bomb is a checkpoint whose disk of 64 MiB takes a few bytes.
func (n *node) bomb(t *testing.T) (archive string) {
	t.Helper()
	s := n.saved(t)
	s.disk = filepath.Join(t.TempDir(), "bomb")
	must(t, os.WriteFile(s.disk, bytes.Repeat([]byte{1}, 64<<20), 0o600))
	path := s.archive(t)
	info, err := os.Stat(path)
	must(t, err)
	if info.Size() > 256<<10 {
		t.Fatalf("an archive of %d bytes", info.Size())
	}
	n.disks.Files["disk"] = filepath.Join(n.dir, "new.qcow2")
	must(t, os.WriteFile(n.disks.Files["disk"], nil, 0o600))
	return path
}

// TestBombLeavesSpace: a checkpoint whose disk would take more than the node may use is not unpacked.
func TestBombLeavesSpace(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		path := n.bomb(t)
		n.images.Free = 1 << 20
		before := n.images.Left()
		if _, err := n.resumes(t, path); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("a checkpoint larger than the free space: %v", err)
		}
		info, err := os.Stat(n.disks.Files["disk"])
		must(t, err)
		if info.Size() != 0 {
			t.Errorf("%d bytes were written", info.Size())
		}
		assert.DeepEqual(t, n.images.Left(), before)
	})
}

// TestStoredIsNotBelieved: a checkpoint promises a larger file than it has, so that its disk could expand to more. Nothing is
// promised or written for it, and it takes no turn.
func TestStoredIsNotBelieved(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		s := n.saved(t)
		s.stored = 1 << 10
		n.disks.Files["disk"] = filepath.Join(n.dir, "new.qcow2")
		before := n.images.Left()
		for _, namespace := range []string{"other", "another"} {
			end, err := n.images.Turns().Take(t.Context(), namespace, func() {})
			must(t, err)
			defer end()
		}
		if _, err := n.resumes(t, s.archive(t)); !errors.Is(err, checkpoint.ErrUnusable) || !strings.Contains(err.Error(), "in nodevirt-checkpoint.json") {
			t.Errorf("%v", err)
		}
		assert.DeepEqual(t, n.images.Left(), before)
	})
}

// TestCheckpointsTakeTurns: checkpoints of one namespace wait for the turns of image conversions, and end with the pod.
func TestCheckpointsTakeTurns(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		path := n.bomb(t)
		pod := n.masqueraded(t, "resumed")
		var ends []func()
		for _, other := range []string{"other", "another"} {
			end, err := n.images.Turns().Take(t.Context(), other, func() {})
			must(t, err)
			ends = append(ends, end)
		}
		config := request(0)
		config.Image.Image = path
		failed := make(chan error, 1)
		go func() {
			_, err := n.Create(t.Context(), pod, config)
			failed <- err
		}()
		synctest.Wait()
		info, err := os.Stat(n.disks.Files["disk"])
		must(t, err)
		if info.Size() != 0 {
			t.Errorf("%d bytes were written without a turn", info.Size())
		}
		ends[0]()
		// The disk's content is no qcow2 file: it has been unpacked.
		if err := <-failed; !errors.Is(err, checkpoint.ErrUnusable) {
			t.Errorf("with a turn: %v", err)
		}
		ends[1]()
	})
}

// TestUnpacksInTheGroup: a checkpoint's disk is decompressed by a process in the VM's cgroup, and not at all if it can't be
// moved there.
func TestUnpacksInTheGroup(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		archive := n.saved(t).archive(t)
		must(t, n.RemoveIn(t.Context(), fmt.Sprintf("%064x", "saved")))
		id, err := n.resumes(t, archive)
		must(t, err)
		if _, pids, _ := n.groups.Of(id); !slices.Equal(pids, []int{os.Getpid()}) {
			t.Errorf("in the cgroup are %v", pids)
		}
		must(t, n.RemoveIn(t.Context(), n.rec(t, id).SandboxID))
		n.wantNothing(t)
		refused := errors.New("no such cgroup")
		n.script.Fail("Groups.Add", refused)
		config := request(0)
		config.Image.Image = archive
		if _, err := n.Create(t.Context(), n.masqueraded(t, "refused"), config); !errors.Is(err, refused) {
			t.Errorf("outside of a cgroup: %v", err)
		}
		n.wantNothing(t)
	})
}
