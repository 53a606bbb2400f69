package apart

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/disk"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/vminfo"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// The nodes' addresses on the cable between them.
const (
	exporterAddress = "10.77.0.1"
	importerAddress = "10.77.0.2"
)

// TestApart has a VM of one node use a disk that another node exports.
func TestApart(t *testing.T) {
	exporter := node.ForTest(t, node.Options{
		Subnet:     netip.MustParsePrefix("10.98.0.0/16"),
		Components: []string{node.Registry, node.Containerd, node.Tgtd, node.Shim},
		ShimConfig: func(c map[string]any) { c["iscsi"] = map[string]any{"address": exporterAddress} },
	})
	importer := node.ForTest(t, node.Options{
		Subnet:     netip.MustParsePrefix("10.99.0.0/16"),
		ShimConfig: func(c map[string]any) { c["iscsi"] = map[string]any{"timeout": "5s"} },
	})
	cable(t, exporter, importer)
	path, err := guest.TinyWithAgent(t.Context(), importer.GuestOptions())
	assert.NilError(t, err)
	image, err := images.RegistryDisk(path, images.DiskOptions{})
	assert.NilError(t, err)
	data, err := exporter.Push(t.Context(), "data:1", image)
	assert.NilError(t, err)
	boot, err := importer.Push(t.Context(), "boot:1", image)
	assert.NilError(t, err)
	before, err := exporter.Settled(t.Context())
	assert.NilError(t, err)

	// Nothing of the password is on a command line: it goes by files of root's.
	file := filepath.Join(t.TempDir(), "data.json")
	nodevirt(t, exporter, "disk", "export", data, "--name", "data", "-o", file)
	info, err := os.Stat(file)
	assert.NilError(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the password is in a file with mode %v", info.Mode())
	}
	refused(t, exporter, "exists already", "disk", "export", data, "--name", "data", "-o", file+"2")
	refused(t, exporter, "invalid name", "disk", "export", data, "--name", "../data", "-o", file+"2")
	refused(t, importer, "the namespace of the pods", "disk", "import", "data", "--namespace", "", file)
	refused(t, importer, "not the output of", "disk", "import", "data", "--namespace", "default", "/etc/passwd")
	nodevirt(t, importer, "disk", "import", "data", "--namespace", "default", file)
	if list := nodevirt(t, importer, "disk", "ls"); !strings.Contains(list, "data") || !strings.Contains(list, exporterAddress) {
		t.Errorf("the import is not listed:\n%s", list)
	}

	m := machine{n: importer, image: boot}
	m.dial(t)
	if err := m.try(t, "other", "elsewhere"); err == nil || !strings.Contains(err.Error(), "no such import") {
		t.Errorf("a pod of another namespace: %v", err)
	}

	first := m.start(t, "first")
	// All of the export can be read, and it is what the image holds.
	if got, want := first.sh("sha256sum </dev/vdb"), first.sh("sha256sum </dev/vda"); got == "" || len(got) != len(want) {
		t.Errorf("digests %q and %q", got, want)
	}
	first.sh("dd if=/dev/urandom of=/tmp/r bs=64k count=16 2>/dev/null; dd if=/tmp/r of=/dev/vdb bs=64k seek=900 conv=fsync 2>/dev/null")
	sum := first.sh("sha256sum </tmp/r")
	const read = "echo 3 >/proc/sys/vm/drop_caches; dd if=/dev/vdb bs=64k skip=900 count=16 2>/dev/null | sha256sum"
	if got := first.sh(read); got != sum {
		t.Errorf("read %q, written %q", got, sum)
	}
	refused(t, exporter, "in use", "disk", "unexport", "data")
	wait.Until(t, "another node is refused", func() bool { return asksFor(t, exporter, file) != nil })
	const taken = "import data: in use by another VM of this node"
	if err := m.try(t, "another", "default"); err == nil || !strings.Contains(err.Error(), taken) {
		t.Errorf("a second VM of the import: %v", err)
	}

	// The cable is cut in the middle of writes, and mended; so is the exporter's tgtd, and its shim.
	first.sh("(i=0; while [ ! -e /tmp/enough ]; do dd if=/tmp/r of=/dev/vdb bs=64k seek=900 conv=fsync 2>/dev/null && echo $((i += 1)) >/tmp/count; done; touch /tmp/ended) >/dev/null 2>&1 &")
	goesOn := func(what string) {
		t.Helper()
		was := first.again("cat /tmp/count")
		wait.Until(t, "the guest writes on "+what, func() bool { return first.again("cat /tmp/count") != was })
	}
	wait.Until(t, "the guest writes", func() bool { return first.again("cat /tmp/count 2>/dev/null") != "" })
	inNode(t, exporter, "ip", "link", "set", "cable", "down")
	first.stopped()
	inNode(t, exporter, "ip", "link", "set", "cable", "up")
	goesOn("when the cable is mended")
	assert.NilError(t, exporter.Restart(t.Context(), node.Tgtd))
	goesOn("with another tgtd")
	assert.NilError(t, exporter.Restart(t.Context(), node.Shim))
	goesOn("with another shim")
	assert.NilError(t, importer.Restart(t.Context(), node.Shim))
	goesOn("with another shim of its own")
	if err := m.try(t, "third", "default"); err == nil || !strings.Contains(err.Error(), taken) {
		t.Errorf("a second VM of the import, asked of another shim: %v", err)
	}
	first.again("touch /tmp/enough")
	wait.Until(t, "the writer ends", func() bool { return first.again("ls /tmp/ended 2>/dev/null") != "" })
	if got := first.again(read); got != sum {
		t.Errorf("after all that read %q, written %q", got, sum)
	}
	first.remove()
	wait.Until(t, "another node can use it", func() bool { return asksFor(t, exporter, file) == nil })

	// The export outlives the VM: the next VM finds what the first has written.
	second := m.start(t, "second")
	if got := second.sh(read); got != sum {
		t.Errorf("another VM reads %q, the first has written %q", got, sum)
	}
	// Removed by force, the disk fails, and does not hang.
	nodevirt(t, exporter, "disk", "unexport", "data", "--force")
	// The guest may be stopped before its agent has answered.
	_, _ = second.exec("sh", "-c", "dd if=/dev/vdb of=/dev/null bs=64k count=1 skip=100 iflag=direct >/dev/null 2>&1 &")
	second.stopped()
	second.remove()
	nodevirt(t, importer, "disk", "forget", "data")
	refused(t, importer, "no such", "disk", "forget", "data")
	assert.NilError(t, exporter.Restart(t.Context(), node.Tgtd)) // what the forced end left waits for that
	assert.NilError(t, exporter.SameAgain(t.Context(), before, time.Minute))
}

// asksFor has a node log in to an export, with all that the file of a connection holds.
func asksFor(t *testing.T, n *node.Node, file string) error {
	t.Helper()
	text, err := os.ReadFile(file)
	assert.NilError(t, err)
	var c disk.Connection
	assert.NilError(t, json.Unmarshal(text, &c))
	_, err = n.Output(t.Context(), "iscsi-inq", "-i", c.Initiator,
		fmt.Sprintf("iscsi://%s%%%s@%s/%s/%d", c.User, c.Password, c.Portal, c.Target, c.LUN))
	return err
}

// cable joins two nodes.
func cable(t *testing.T, a, b *node.Node) {
	t.Helper()
	for _, args := range [][]string{
		{"ip", "link", "add", "cable", "netns", strconv.Itoa(a.PID()), "type", "veth", "peer", "name", "cable", "netns", strconv.Itoa(b.PID())},
	} {
		out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
	}
	inNode(t, a, "ip", "addr", "add", exporterAddress+"/24", "dev", "cable")
	inNode(t, b, "ip", "addr", "add", importerAddress+"/24", "dev", "cable")
	inNode(t, a, "ip", "link", "set", "cable", "up")
	inNode(t, b, "ip", "link", "set", "cable", "up")
}

func inNode(t *testing.T, n *node.Node, name string, args ...string) string {
	t.Helper()
	out, err := n.Output(t.Context(), name, args...)
	assert.NilError(t, err)
	return out
}

func program(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../../../bin/nodevirt")
	assert.NilError(t, err)
	return path
}

func nodevirt(t *testing.T, n *node.Node, args ...string) string {
	t.Helper()
	return inNode(t, n, program(t), args...)
}

func refused(t *testing.T, n *node.Node, words string, args ...string) {
	t.Helper()
	out, err := n.Output(t.Context(), program(t), args...)
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("nodevirt %q: %q, %v; want %q", args, out, err, words)
	}
}

// machine is what VMs are made of.
type machine struct {
	n     *node.Node
	image string
	cri   runtimeapi.RuntimeServiceClient
}

func (m *machine) dial(t *testing.T) {
	t.Helper()
	conn, err := node.DialCRI(m.n.ShimSocket())
	assert.NilError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	m.cri = runtimeapi.NewRuntimeServiceClient(conn)
}

// vm is a VM with the import as its second disk.
type vm struct {
	*machine
	t   *testing.T
	pod string
	cfg node.Pod
	id  string
}

func (m *machine) pod(t *testing.T, name, namespace string) *vm {
	t.Helper()
	p := m.n.NewPod(name)
	p["annotations"] = map[string]any{"nodevirt.io/imported-disks": "data"}
	p["metadata"].(map[string]any)["namespace"] = namespace
	pod, err := m.n.RunPod(t.Context(), p, "vm")
	assert.NilError(t, err)
	v := &vm{machine: m, t: t, pod: pod, cfg: p}
	t.Cleanup(v.remove)
	return v
}

func (v *vm) create() error {
	c := node.NewContainer("guest", v.image)
	c["linux"] = map[string]any{"resources": map[string]any{"memory_limit_in_bytes": 256 << 20}}
	id, err := v.n.CreateContainer(v.t.Context(), v.pod, v.cfg, c)
	v.id = id
	return err
}

// try makes a VM in a pod of a namespace, and returns why it can't.
func (m *machine) try(t *testing.T, name, namespace string) error {
	t.Helper()
	v := m.pod(t, name, namespace)
	defer v.remove()
	return v.create()
}

// start starts a VM and waits for its agent.
func (m *machine) start(t *testing.T, name string) *vm {
	t.Helper()
	v := m.pod(t, name, "default")
	assert.NilError(t, v.create())
	_, err := m.cri.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: v.id})
	assert.NilError(t, err)
	wait.Until(t, "the guest's agent answers", func() bool {
		r, err := v.exec("true")
		return err == nil && r.ExitCode == 0
	})
	return v
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

// again runs a line that may be run twice, until the agent has answered: the agent of a guest that is
// stopped at a disk error does not.
func (v *vm) again(line string) (said string) {
	v.t.Helper()
	wait.Until(v.t, "the agent answers", func() bool {
		r, err := v.exec("sh", "-c", line)
		said = strings.TrimSpace(string(r.GetStdout()))
		return err == nil
	})
	return said
}

// stopped waits until the guest is stopped at an error of its disk.
func (v *vm) stopped() {
	v.t.Helper()
	wait.Until(v.t, "the guest is stopped", func() bool {
		r, err := v.cri.ContainerStatus(v.t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: v.id, Verbose: true})
		assert.NilError(v.t, err)
		info, err := vminfo.Read(r.Info)
		assert.NilError(v.t, err)
		return info.VM.Paused == condition.ReasonPausedIOError
	})
}

func (v *vm) remove() {
	if v.pod == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(v.t.Context()), wait.Patience)
	defer cancel()
	if err := v.n.RemovePod(ctx, v.pod, v.cfg); err != nil {
		v.t.Error(err)
	}
	v.pod = ""
}
