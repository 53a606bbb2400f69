//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/migrate/handover"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/records"
)

// thing is what a node keeps, and the daemon that reads it when it starts.
type thing struct {
	name    string
	reader  string
	path    func(r *round) string // on the node
	damages []damage
	// live are the damages that a guest that runs does not notice; nil for all. The others would be faults of its disk.
	live []string
	// all says that the damage is to what the node keeps of each VM.
	all bool
	// make makes it of a VM that runs; nil for what each VM has.
	make func(context.Context, *round) error
}

// things are what a node keeps of a VM, and of all VMs.
func things() []thing {
	domain := func(r *round) string { return "default_" + r.name + "_" + r.container[:12] + ".xml" }
	root := filepath.Join(suite.Dir(), "nodevirt")
	own := func(name string) func(r *round) string {
		return func(r *round) string { return filepath.Join(root, "containers", r.container, name) }
	}
	at := func(path string) func(*round) string { return func(*round) string { return path } }
	// libvirt kills each guest whose status it cannot write: -before-libvirtd is about that.
	readable := slices.DeleteFunc(slices.Clone(fileDamages), func(d damage) bool { return d.name == "read-only" })
	unlinked := []string{"missing", "read-only", "unreadable"}
	return []thing{
		{name: "record", reader: node.Shim, path: own("record.json"), damages: fileDamages},
		{name: "sandbox record", reader: node.Shim, damages: fileDamages, path: func(r *round) string { return filepath.Join(root, "sandboxes", r.id+".json") }},
		{name: "status", reader: node.Libvirtd, damages: readable, path: func(r *round) string { return filepath.Join("/run/libvirt/qemu", domain(r)) }},
		{name: "definition", reader: node.Libvirtd, damages: fileDamages, path: func(r *round) string { return filepath.Join("/etc/libvirt/qemu", domain(r)) }},
		{name: "seed", reader: node.Shim, path: own("seed.iso"), damages: fileDamages, live: unlinked},
		{name: "overlay", reader: node.Shim, path: own("disk.qcow2"), damages: fileDamages, live: unlinked},
		{name: "console", reader: node.Shim, path: own("console"), damages: fileDamages},
		{name: "migration's record", reader: node.Shim, path: own("migration.json"), damages: fileDamages, make: sends},
		{name: "containers", reader: node.Shim, path: at(filepath.Join(root, "containers")), damages: folderDamages, all: true},
		{name: "root", reader: node.Shim, path: at(root), damages: fullDamages},
		{name: "sockets", reader: node.Shim, path: at("/run/nodevirt"), damages: []damage{lostSockets}},
		{name: "libvirt's run folder", reader: node.Libvirtd, path: at("/run/libvirt/qemu"), damages: folderDamages[:1], all: true},
	}
}

// sends has the shim's record of a VM say that a migration sends its guest to another node, as a shim leaves it that is
// killed meanwhile.
func sends(ctx context.Context, r *round) error {
	id, err := suite.Output(ctx, "virsh", "--connect", "qemu:///system", "domuuid", "default_"+r.name+"_"+r.container[:12])
	if err != nil {
		return err
	}
	return handover.NewFile(shimRoot("containers", r.container)).Put(handover.NewSending("a-migration", strings.TrimSpace(id)))
}

// damaged is a round: what is damaged, how, in which phase of a VM's life: created, running or ended. In the last, QEMU
// ends while the daemon is away.
type damaged struct {
	thing
	damage

	phase string
	// others are daemons that are restarted with the reader.
	others []string
}

func (d damaged) String() string {
	return strings.Join(append([]string{d.thing.name, d.damage.name, d.phase}, d.others...), " ")
}

// makes reports whether there is such a round.
func (d damaged) makes() bool {
	unborn := map[string]bool{"status": true, "console": true, "migration's record": true}
	switch {
	case d.phase == "created" && (unborn[d.thing.name] || d.damage.name == "older" || d.thing.name == "definition"):
		return false // there is no such file yet
	case d.damage.name == "older" || d.damage.name == "newer":
		return d.thing.name == "record" || d.damage.name == "newer" && (d.thing.name == "sandbox record" || d.thing.name == "migration's record")
	case d.phase == "running" && d.live != nil:
		return slices.Contains(d.live, d.damage.name)
	case d.phase == "ended" && (d.thing.name == "status" || d.thing.name == "definition" || d.thing.name == "sockets"):
		return false // the end removes them, so nothing must put them back
	}
	return true
}

// everyDamage are all rounds.
func everyDamage() (all []damaged) {
	for _, t := range things() {
		for _, how := range t.damages {
			for _, phase := range []string{"created", "running", "ended"} {
				if d := (damaged{thing: t, damage: how, phase: phase}); d.makes() {
					all = append(all, d)
				}
			}
		}
	}
	return all
}

// TestDamagedState has each kind of damage, and damages each thing, once while its guest runs.
func TestDamagedState(t *testing.T) {
	had := map[string]bool{}
	for _, d := range everyDamage() {
		if d.phase != "running" || had[d.thing.name] && had[d.damage.name] {
			continue
		}
		had[d.thing.name], had[d.damage.name] = true, true
		t.Run(d.String(), d.run)
	}
}

// TestFoundDamage has the rounds in which nodevirt was once wrong.
func TestFoundDamage(t *testing.T) {
	for _, found := range []struct {
		round string
		// others are the daemons that are restarted with the reader.
		others []string
	}{
		{"record older ended", []string{node.Libvirtd}},
		{"record missing ended", []string{node.Libvirtd}},
		{"record missing ended", []string{node.Containerd}},
	} {
		all := everyDamage()
		i := slices.IndexFunc(all, func(d damaged) bool { return d.String() == found.round })
		assert.Assert(t, i >= 0, "there is no round %q", found.round)
		all[i].others = found.others
		t.Run(all[i].String(), all[i].run)
	}
}

// TestDamagedRounds draws rounds from seeds: make test-faults ROUNDS=300 FLAGS=-run=TestDamagedRounds.
func TestDamagedRounds(t *testing.T) {
	all := everyDamage()
	for i := range uint64(*rounds) {
		r := rand.New(rand.NewPCG(*seed+i, 2))
		d := all[r.IntN(len(all))]
		for _, name := range []string{node.Containerd, node.Libvirtd, node.Shim} {
			if name != d.reader && r.IntN(3) == 0 {
				d.others = append(d.others, name)
			}
		}
		t.Run(fmt.Sprintf("%d %s", *seed+i, d), d.run)
	}
}

// damagedVMI has a block device and a file that the pod's next attempt would write to, too.
const damagedVMI = `{
	"domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "block", "disk": {"bus": "virtio"}},
		{"name": "files", "disk": {"bus": "virtio"}}, {"name": "seed", "cdrom": {"bus": "scsi"}}]}},
	"volumes": [{"name": "root", "containerDisk": {"image": "r"}}, {"name": "block", "persistentVolumeClaim": {"claimName": "a"}},
		{"name": "files", "persistentVolumeClaim": {"claimName": "b"}}, {"name": "seed", "cloudInitNoCloud": {"userData": "password: ` + password + `"}}]}`

// withVolumes gives a pod's VM the block device and the file of damagedVMI.
func (p *pod) withVolumes(device, files string) {
	p.config.Annotations = map[string]string{
		vmspec.AnnotationVMI: damagedVMI, vmspec.AnnotationBlankDisks: "files=" + strconv.Itoa(records.DiskBytes),
	}
	p.guest.Devices = []*runtimeapi.Device{{ContainerPath: "/dev/block", HostPath: device, Permissions: "mrw"}}
	p.guest.Mounts = []*runtimeapi.Mount{{ContainerPath: "/volumes/files", HostPath: files}}
}

// run damages what the node keeps of a VM, with its reader restarted. Each guest runs on and is shown, no file or device
// is open for writing in two QEMUs, also if the kubelet tries again, and when the fault has gone all is as before.
func (d damaged) run(t *testing.T) {
	device, files := loopfs.Device(t, records.DiskBytes), t.TempDir() // removed after the pod
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s\n%s", suite.LogTail(node.Shim, 60), suite.LogTail(node.Libvirtd, 5))
		}
	})
	r := begin(t) // its clean-up may fail, too
	r.withVolumes(device, files)
	r.does(t, life[:started-1]...)
	path := d.path(r)
	older, _ := os.ReadFile(outside(path)) // there may be none yet
	if d.phase != "created" {
		r.does(t, life[started-1])
		if d.make != nil {
			assert.NilError(t, d.make(t.Context(), r))
		}
	}
	before := processes(r.domain())
	down := append([]string{d.reader}, d.others...)
	r.loses(t, down...)
	whole, err := os.ReadFile(outside(path))
	if err != nil && !errors.Is(err, syscall.EISDIR) {
		t.Fatal(err)
	}
	undo, err := d.do(t.Context(), path, whole, older)
	restored := false
	restore := func(ctx context.Context) error {
		if restored {
			return nil
		}
		restored = true
		_ = suite.Kill(ctx, d.reader, syscall.SIGKILL) // it may have failed to start
		err := undo(ctx)
		return errors.Join(err, os.RemoveAll(shimRoot("broken", r.id+".json")), resume(ctx, d.reader))
	}
	t.Cleanup(func() { assert.NilError(t, restore(context.WithoutCancel(t.Context()))) })
	assert.NilError(t, err)
	if d.phase == "ended" {
		killAll(r.domain())
		before = nil
	}
	assert.NilError(t, resume(t.Context(), down...))

	assert.NilError(t, d.shown(t.Context(), r))
	if now := processes(r.domain()); d.phase != "created" && !slices.Equal(now, before) {
		t.Errorf("its QEMU was %v and is %v", before, now)
	}
	d.again(t, r)
	assert.NilError(t, exclusive())
	assert.NilError(t, restore(t.Context()))
	assert.NilError(t, r.look(t.Context()))
	if now := processes(r.domain()); d.phase == "running" && !slices.Equal(now, before) {
		t.Errorf("without the fault, its QEMU was %v and is %v", before, now)
	}
}

// shown returns an error unless each guest that runs is in the list of containers, and steady guests run.
func (d damaged) shown(ctx context.Context, r *round) error {
	for _, g := range suite.steady {
		if err := g.echoes(); err != nil {
			return fmt.Errorf("guest %s: %w", g.name, err)
		}
	}
	if !d.all {
		if err := converge(ctx, answers); err != nil {
			return err
		}
	}
	reply, err := suite.cri.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return err
	}
	listed := map[string]bool{}
	for _, c := range reply.GetContainers() {
		listed[c.GetId()] = true
	}
	guests := map[string]string{}
	for _, g := range suite.steady {
		guests[g.name] = g.container
	}
	if runs(r.domain()) {
		guests[r.name] = r.container
	}
	for name, id := range guests {
		if !listed[id] {
			return fmt.Errorf("guest %s runs, and its container %s is not listed", name, id)
		}
	}
	return nil
}

// again does what a kubelet does next: it starts the container, or the next attempt. One QEMU of the pod runs at the most.
func (d damaged) again(t *testing.T, r *round) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	next := *r.pod
	next.guest = proto.CloneOf(r.guest)
	next.guest.Metadata.Attempt++
	calls := life[started-1 : started]
	if d.phase != "created" {
		calls = life[1:started]
	}
	var err error
	for _, c := range calls {
		if err = c.do(ctx, &next); err != nil {
			break
		}
	}
	if all := processes(r.domain()); len(all) > 1 || d.phase == "running" && err == nil {
		t.Errorf("the next attempt: %v; QEMUs %v", err, all)
	}
	wrong := slices.Contains([]string{"missing", "empty", "garbage", "unreadable"}, d.damage.name)
	if d.phase == "created" && d.thing.name == "overlay" && wrong && err == nil {
		t.Error("a VM starts with a damaged disk")
	}
	if d.phase == "created" && d.thing.name == "seed" && (d.damage.name == "empty" || d.damage.name == "missing") && err != nil {
		t.Errorf("the seed is not written again: %v", err)
	}
}

// exclusive returns an error if two QEMUs of the node have one file or one block device open for writing.
func exclusive() error {
	writers := map[string]int{}
	var errs []error
	for _, pid := range processes("guest=default_") {
		if !inNode(pid) {
			continue
		}
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		for _, f := range files {
			what, ok := written(pid, f.Name())
			if !ok {
				continue
			}
			if other, taken := writers[what]; taken && other != pid {
				errs = append(errs, fmt.Errorf("processes %d and %d write to %s", other, pid, what))
			}
			writers[what] = pid
		}
	}
	return errors.Join(errs...)
}

// written identifies the regular file or the block device that a process has open for writing.
func written(pid int, fd string) (what string, ok bool) {
	var st unix.Stat_t
	if unix.Stat(fmt.Sprintf("/proc/%d/fd/%s", pid, fd), &st) != nil {
		return "", false
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFBLK:
		what = fmt.Sprintf("device %d", st.Rdev)
	case unix.S_IFREG:
		what = fmt.Sprintf("file %d on %d", st.Ino, st.Dev)
	default:
		return "", false
	}
	info, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, fd))
	if err != nil {
		return "", false
	}
	_, flags, _ := strings.Cut(string(info), "flags:")
	var mode int
	if _, err := fmt.Sscanf(flags, "%o", &mode); err != nil {
		return "", false
	}
	return what, mode&unix.O_ACCMODE != unix.O_RDONLY
}
