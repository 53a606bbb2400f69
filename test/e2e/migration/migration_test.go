package migration

import (
	"context"
	"encoding/json"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/migrate/handover"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestMigration moves a guest to another node and back. Before that it stays where it is: its target is
// stopped, or loses its shim. Its memory, its disks and its processes are as before each time.
func TestMigration(t *testing.T) {
	a, b := newNodes(t)
	for _, m := range []*machine{a, b} {
		empty := m.pod(t, "empty", "") // the first pod of a node brings the pods' bridge and libvirt's folders
		empty.start()
		empty.remove()
		before, err := m.Settled(t.Context())
		assert.NilError(t, err)
		m.before = before
	}

	first := a.pod(t, "first", "")
	first.start()
	first.answers()
	boot := first.sh("cat /proc/sys/kernel/random/boot_id")
	first.sh("dd if=/dev/urandom of=/tmp/r bs=64k count=64 2>/dev/null; dd if=/tmp/r of=/dev/vdb bs=64k seek=100 conv=fsync 2>/dev/null; " +
		"dd if=/tmp/r of=/dev/vda bs=512 seek=1500 count=100 conv=fsync 2>/dev/null")
	first.sh("(i=0; while :; do echo $((i += 1)) >/tmp/count; sleep 0.2; done) >/dev/null 2>&1 &")
	const read = "echo 3 >/proc/sys/vm/drop_caches; sha256sum </tmp/r; dd if=/dev/vdb bs=64k skip=100 count=64 2>/dev/null | sha256sum; " +
		"dd if=/dev/vda bs=512 skip=1500 count=100 2>/dev/null | sha256sum"
	content := first.sh(read)

	t.Run("refused", func(t *testing.T) {
		for name, end := range map[string]func(v *vm){
			"stopped":           func(v *vm) { v.stop() },
			"its shim restarts": func(*vm) { assert.NilError(t, b.Restart(t.Context(), node.Shim)) },
		} {
			migration := uuid.NewString()
			id := order.Identity{}
			first.control(order.Identify, order.Migration{Migration: migration}, &id)
			target := b.pod(t, "refused", migration)
			target.start()
			var reached order.Identity
			target.control(order.Receive, order.Reception{Migration: order.Migration{Migration: migration}, Source: id.Fingerprint, Guest: id.Guest}, &reached)
			end(target)
			if s := target.ended(); s.Reason != condition.ReasonMigrationRefused || s.ExitCode == 0 {
				t.Errorf("%s: the target ended with %d, %s, %q", name, s.ExitCode, s.Reason, s.Message)
			}
			target.remove()
			// The source finds no target.
			first.control(order.Send, order.Sending{Migration: order.Migration{Migration: migration}, Target: reached}, nil)
			if r := first.over(migration); r.State != string(handover.Kept) || r.Reason == "" {
				t.Errorf("%s: the source reports %+v", name, r)
			}
		}
		first.answers()
	})

	t.Run("ended while it copies", func(t *testing.T) {
		for name, end := range map[string]func(m order.Migration){
			"cancelled":                  func(m order.Migration) { first.control(order.Cancel, m, nil) },
			"the source's shim restarts": func(order.Migration) { assert.NilError(t, a.Restart(t.Context(), node.Shim)) },
			"the target's shim restarts": func(order.Migration) { assert.NilError(t, b.Restart(t.Context(), node.Shim)) },
		} {
			migration, target := begin(t, first, b, "ended", 1<<20)
			wait.Until(t, "it copies", func() bool {
				var r order.Report
				first.control(order.Status, migration, &r)
				return r.Processed > 1<<20
			})
			end(migration)
			if r := first.over(migration.Migration); r.State != string(handover.Kept) || r.Reason == "" {
				t.Errorf("%s: the source reports %+v", name, r)
			}
			if s := target.ended(); s.Reason != condition.ReasonMigrationRefused {
				t.Errorf("%s: the target ended with %d, %s, %q", name, s.ExitCode, s.Reason, s.Message)
			}
			target.remove()
			first.answers()
			if got := first.sh(read); got != content {
				t.Errorf("%s: the disks have\n%s\nand had\n%s", name, got, content)
			}
		}
	})

	second := move(t, first, b, "second")
	check(t, second, boot, content, read)
	second.sh("dd if=/dev/urandom of=/tmp/r bs=64k count=64 2>/dev/null; dd if=/tmp/r of=/dev/vdb bs=64k seek=200 conv=fsync 2>/dev/null")
	third := move(t, second, a, "third")
	check(t, third, boot, third.sh(read), read)
	third.stop()
	third.remove()
	for _, m := range []*machine{a, b} {
		assert.NilError(t, m.SameAgain(t.Context(), m.before, time.Minute))
	}
}

// newNodes starts two nodes that reach each other's pods, and have the image of a guest.
func newNodes(t *testing.T) (a, b *machine) {
	t.Helper()
	return newNodesWith(t, node.Options{})
}

// firstAddress and secondAddress are those of the nodes at their cable.
const firstAddress, secondAddress = "10.78.0.1", "10.78.0.2"

// newNodesWith starts nodes as [newNodes] does, with options, which have no subnet.
func newNodesWith(t *testing.T, o node.Options) (a, b *machine) {
	t.Helper()
	o.Subnet = netip.MustParsePrefix("10.96.0.0/16")
	a = newNode(t, o)
	o.Subnet = netip.MustParsePrefix("10.97.0.0/16")
	b = newNode(t, o)
	cable(t, a, b, "cable")
	for _, end := range []struct {
		own, other   *machine
		address, via string
	}{{a, b, firstAddress, secondAddress}, {b, a, secondAddress, firstAddress}} {
		inNode(t, end.own, "ip", "addr", "add", end.address+"/24", "dev", "cable")
		inNode(t, end.own, "ip", "link", "set", "cable", "up")
		inNode(t, end.own, "ip", "route", "add", end.other.subnet.String(), "via", end.via)
	}
	a.push(t)
	b.push(t)
	return a, b
}

// push gives a node the image of a guest.
func (m *machine) push(t *testing.T) {
	t.Helper()
	path, err := guest.TinyWithAgent(t.Context(), m.GuestOptions())
	assert.NilError(t, err)
	image, err := images.RegistryDisk(path, images.DiskOptions{})
	assert.NilError(t, err)
	m.image, err = m.Push(t.Context(), "guest:1", image)
	assert.NilError(t, err)
}

// begin begins to move a guest to another node, with a bandwidth in bytes a second unless it is 0.
func begin(t *testing.T, from *vm, to *machine, name string, bandwidth int64) (order.Migration, *vm) {
	t.Helper()
	migration := order.Migration{Migration: uuid.NewString()}
	var source, target order.Identity
	from.control(order.Identify, order.Departure{Migration: migration, Copied: from.copied}, &source)
	v := to.pod(t, name, migration.Migration)
	v.start()
	reception := order.Reception{Migration: migration, Source: source.Fingerprint, Guest: source.Guest, Node: to.address}
	if to.attach != nil {
		reception.Volumes = to.attach(t, v)
	}
	v.control(order.Receive, reception, &target)
	from.control(order.Send, order.Sending{Migration: migration, Target: target, Timeout: 3 * time.Minute, Bandwidth: bandwidth}, nil)
	return migration, v
}

// move moves a guest to another node.
func move(t *testing.T, from *vm, to *machine, name string) *vm {
	t.Helper()
	begun := time.Now()
	migration, v := begin(t, from, to, name, 0)
	if s := from.ended(); s.Reason != condition.ReasonMigrated || s.ExitCode != 0 {
		t.Fatalf("the source ended with %d, %s, %q", s.ExitCode, s.Reason, s.Message)
	}
	t.Log("moved in", time.Since(begun))
	if r := v.over(migration.Migration); r.State != string(handover.Taken) {
		t.Errorf("the target reports %+v", r)
	}
	from.remove()
	return v
}

// check checks that a guest is the one that has moved.
func check(t *testing.T, v *vm, boot, content, read string) {
	t.Helper()
	v.answers()
	if got := v.sh("cat /proc/sys/kernel/random/boot_id"); got != boot {
		t.Errorf("another guest: %s, was %s", got, boot)
	}
	if got := v.sh(read); got != content {
		t.Errorf("the disks have\n%s\nand had\n%s", got, content)
	}
	count := v.sh("cat /tmp/count")
	wait.Until(t, "its processes run", func() bool { return v.sh("cat /tmp/count") != count })
	v.control("pause", nil, nil)
	v.control("unpause", nil, nil)
	v.answers()
}

// machine is a node.
type machine struct {
	*node.Node
	subnet netip.Prefix
	image  string
	cri    runtimeapi.RuntimeServiceClient
	before node.Census
	// vmi and annotations are those of its pods, devices and mounts are their containers'.
	vmi         string
	devices     []any
	mounts      []any
	annotations map[string]string
	// attach makes the attachment pod of a VM whose guest comes, and returns the containers of its volumes; nil
	// for a guest that got no disks.
	attach func(t *testing.T, v *vm) map[string]string
	// copied are the disks of its guests that move to other PVCs.
	copied []string
	// address is the node's, for guests with their pod's address.
	address netip.Addr
}

// mount has the containers of its pods mount a folder of the host.
func (m *machine) mount(at, folder string) {
	m.mounts = []any{map[string]any{"container_path": at, "host_path": folder}}
}

func newNode(t *testing.T, o node.Options) *machine {
	t.Helper()
	m := &machine{Node: node.ForTest(t, o), subnet: o.Subnet, vmi: vmi}
	conn, err := node.DialCRI(m.ShimSocket())
	assert.NilError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	m.cri = runtimeapi.NewRuntimeServiceClient(conn)
	return m
}

// vm is a VM in a pod.
type vm struct {
	*machine
	t       *testing.T
	sandbox string
	config  node.Pod
	id      string
	// attached is the VM's attachment pod, if it has one.
	attached *vm
}

const vmi = `{
	"domain": {"devices": {
		"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "data", "disk": {"bus": "virtio"}}],
		"interfaces": [{"name": "default", "masquerade": {}}]
	}},
	"networks": [{"name": "default", "pod": {}}],
	"volumes": [{"name": "root", "containerDisk": {"image": "r"}}, {"name": "data", "emptyDisk": {"capacity": "64Mi"}}]
}`

// pod makes a pod with a VM. With a migration the VM waits for a guest.
func (m *machine) pod(t *testing.T, name, migration string) *vm {
	t.Helper()
	p := m.NewPod(name)
	annotations := map[string]any{"nodevirt.io/vmi": m.vmi}
	for key, value := range m.annotations {
		annotations[key] = value
	}
	if migration != "" {
		annotations[order.Annotation] = migration
	}
	p["annotations"] = annotations
	sandbox, err := m.RunPod(t.Context(), p, "vm")
	assert.NilError(t, err)
	v := &vm{machine: m, t: t, sandbox: sandbox, config: p}
	t.Cleanup(v.remove)
	c := node.NewContainer("guest", m.image)
	if m.devices != nil {
		c["devices"] = m.devices
	}
	if m.mounts != nil {
		c["mounts"] = m.mounts
	}
	c["linux"] = map[string]any{"resources": map[string]any{"memory_limit_in_bytes": 256 << 20}}
	v.id, err = m.CreateContainer(t.Context(), sandbox, p, c)
	assert.NilError(t, err)
	return v
}

func (v *vm) start() {
	v.t.Helper()
	_, err := v.cri.StartContainer(v.t.Context(), &runtimeapi.StartContainerRequest{ContainerId: v.id})
	assert.NilError(v.t, err)
}

func (v *vm) stop() {
	v.t.Helper()
	_, err := v.cri.StopContainer(v.t.Context(), &runtimeapi.StopContainerRequest{ContainerId: v.id})
	assert.NilError(v.t, err)
}

func (v *vm) remove() {
	if v.sandbox == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.t.Context()), wait.Patience)
	defer cancel()
	if err := v.RemovePod(ctx, v.sandbox, v.config); err != nil {
		v.t.Error(err)
	}
	v.sandbox = ""
	if v.attached != nil {
		v.attached.remove()
	}
}

func (v *vm) exec(command ...string) (*runtimeapi.ExecSyncResponse, error) {
	return v.cri.ExecSync(v.t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: v.id, Cmd: command, Timeout: 120})
}

// sh runs a line in the guest.
func (v *vm) sh(line string) string {
	v.t.Helper()
	r, err := v.exec("sh", "-c", line)
	assert.NilError(v.t, err)
	return strings.TrimSpace(string(r.Stdout))
}

// answers waits for the guest's agent.
func (v *vm) answers() {
	v.t.Helper()
	wait.Until(v.t, "the guest's agent answers", func() bool {
		r, err := v.exec("true")
		return err == nil && r.ExitCode == 0
	})
}

// control sends a machine control, with an argument unless it is nil, and decodes the answer.
func (v *vm) control(name string, argument, answer any) {
	v.t.Helper()
	assert.NilError(v.t, v.try(name, argument, answer))
}

func (v *vm) try(name string, argument, answer any) error {
	command := []string{"nodevirt.io/" + name}
	if argument != nil {
		text, err := json.Marshal(argument)
		if err != nil {
			return err
		}
		command = append(command, string(text))
	}
	r, err := v.exec(command...)
	if err == nil && answer != nil {
		err = json.Unmarshal(r.Stdout, answer)
	}
	return err
}

// over waits until a node has carried out its decision about a migration.
func (v *vm) over(migration string) (r order.Report) {
	v.t.Helper()
	wait.Until(v.t, "the migration is over", func() bool {
		v.control(order.Status, order.Migration{Migration: migration}, &r)
		return r.Ended
	})
	return r
}

// ended waits until the container has ended.
func (v *vm) ended() *runtimeapi.ContainerStatus {
	v.t.Helper()
	var s *runtimeapi.ContainerStatus
	wait.Until(v.t, "the container ends", func() bool {
		r, err := v.cri.ContainerStatus(v.t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: v.id})
		s = r.GetStatus()
		return err == nil && s.State == runtimeapi.ContainerState_CONTAINER_EXITED
	})
	return s
}

// cable joins two nodes by a link, which has the same name on both.
func cable(t *testing.T, a, b *machine, name string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ip", "link", "add", name, "netns", strconv.Itoa(a.PID()),
		"type", "veth", "peer", "name", name, "netns", strconv.Itoa(b.PID())).CombinedOutput()
	if err != nil {
		t.Fatalf("join two nodes: %v: %s", err, out)
	}
}

func inNode(t *testing.T, n *machine, name string, args ...string) {
	t.Helper()
	_, err := n.Output(t.Context(), name, args...)
	assert.NilError(t, err)
}
