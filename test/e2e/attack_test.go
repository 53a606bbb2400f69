//go:build attack

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	neturl "net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/checkpoint"
	streams "github.com/nodevirt/nodevirt/shim/stream"
	"github.com/nodevirt/nodevirt/shim/stream/client"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/attack"
	"github.com/nodevirt/nodevirt/test/images"
)

// TestAttack: a namespace's editor exceeds bounds of the node, and another namespace's VMs start, stop and run commands in
// their normal time.
func TestAttack(t *testing.T) {
	attack.Run(t, attack.Node, neighbour(t), []attack.Attack{
		{
			Name: "screenshots", Bounds: []string{"screenshots at a time", "calls to libvirtd that users order"},
			Begin: takeScreenshots,
		},
		{Name: "controls", Bounds: []string{"controls of a VM, such as `pause`"}, Begin: pressButtons},
		{
			Name: "large-answers", Bounds: []string{"agents' answers above 1 MiB", "an agent's answers, exec's output"},
			Begin: readMuch,
		},
		{Name: "input", Bounds: []string{"the input of `exec -i`"}, Begin: sendInput},
		{Name: "streams", Bounds: []string{"streams to pods of VMs"}, Begin: openStreams},
		{Name: "silent-connections", Bounds: []string{"connections to the server of streams"}, Begin: connectSilently},
		{
			Name: "conversions", Bounds: []string{"conversions at a time", "a conversion's memory and processor"},
			Begin: convertImages,
		},
		{Name: "checkpoints", Bounds: []string{"a checkpoint's memory and disks"}, Begin: unpackBombs},
	})
}

// inNamespace moves a pod to a namespace.
func inNamespace(namespace string) func(*runtimeapi.PodSandboxConfig) {
	return func(c *runtimeapi.PodSandboxConfig) {
		c.Metadata.Namespace = namespace
		c.Labels["io.kubernetes.pod.namespace"] = namespace
	}
}

// greedyPod is a pod of the tenant that attacks.
func greedyPod(t *testing.T, n int, change ...func(*runtimeapi.PodSandboxConfig)) *pod {
	t.Helper()
	return vmPod(t, append(change, named(fmt.Sprint("greedy-", n)), inNamespace("greedy"))...)
}

// answering returns a VM of a pod whose guest agent answers.
func (p *pod) answering() *container {
	p.t.Helper()
	c := p.vm(suite.agent, func(c *runtimeapi.ContainerConfig) {
		c.Linux.Resources.MemoryLimitInBytes = 384 * mebibyte
	}).start().up()
	c.agentIs(agent.Present)
	return c
}

// neighbour returns what the other namespace does: it runs commands in a VM, and starts and stops others.
func neighbour(t *testing.T) attack.Round {
	t.Helper()
	c := vmPod(t, named("neighbour"), inNamespace("neighbour")).answering()
	n := 0
	return func(ctx context.Context, t *testing.T, measure func(part string, do func() error)) {
		n++
		p := podOf(t, "vm", sized, named(fmt.Sprint("neighbour-", n)), inNamespace("neighbour"))
		var id string
		measure("start", func() error {
			sandbox, err := suite.cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.config, RuntimeHandler: "vm"})
			if err != nil {
				return err
			}
			p.id = sandbox.PodSandboxId
			created, err := suite.cri.CreateContainer(ctx, p.createRequest(p.vmConfig(suite.halt)))
			if err != nil {
				return err
			}
			id = created.ContainerId
			_, err = suite.cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id})
			return err
		})
		measure("exec", func() error {
			r, err := suite.cri.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: c.id, Cmd: []string{"echo", "here"}, Timeout: 60})
			if err == nil && string(r.Stdout) != "here\n" {
				err = fmt.Errorf("code %d, %q", r.ExitCode, r.Stderr)
			}
			return err
		})
		measure("stop", func() error {
			_, err := suite.cri.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 0})
			return err
		})
		p.remove()
	}
}

// control asks a VM for a control, and returns an error if it is refused.
func tryControl(ctx context.Context, c *container, command ...string) error {
	r, err := suite.cri.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: c.id, Cmd: command, Timeout: 120})
	if err == nil && r.ExitCode != 0 {
		err = fmt.Errorf("code %d: %s", r.ExitCode, r.Stderr)
	}
	return err
}

// takeScreenshots asks for many pictures of three VMs.
func takeScreenshots(ctx context.Context, t *testing.T) (end func() error) {
	const clients = 150
	var vms []*container
	for n := range 3 {
		vms = append(vms, greedyPod(t, n, annotated(map[string]string{vmspec.AnnotationVMI: displayed})).vm(suite.halt).start())
	}
	return attack.Gather(ctx, clients, func(ctx context.Context, n int) error {
		return tryControl(ctx, vms[n%len(vms)], "nodevirt.io/screenshot")
	}).Waiting(t, clients)
}

// pressButtons pauses and resumes a VM from many clients.
func pressButtons(ctx context.Context, t *testing.T) (end func() error) {
	vm := greedyPod(t, 0).vm(suite.halt).start()
	return attack.Gather(ctx, 10*bounds.Controls, func(ctx context.Context, n int) error {
		return tryControl(ctx, vm, "nodevirt.io/"+[]string{"pause", "unpause"}[n%2])
	}).Refused(t)
}

// readMuch has a guest agent answer with much output, to more clients than may wait for such answers.
func readMuch(ctx context.Context, t *testing.T) (end func() error) {
	const clients = 4 * bounds.LargeAnswers
	vm := greedyPod(t, 0).answering()
	return attack.Gather(ctx, clients, func(ctx context.Context, _ int) error {
		return tryControl(ctx, vm, "head", "-c", "12000000", "/dev/zero")
	}).Waiting(t, clients)
}

// held is an input of n bytes that does not end before its context.
type held struct {
	ctx  context.Context //nolint:containedctx // of the one stream
	left int
}

func (h *held) Read(p []byte) (int, error) {
	if h.left == 0 {
		<-h.ctx.Done()
		return 0, io.EOF
	}
	n := min(len(p), h.left)
	h.left -= n
	return n, nil
}

// fromOutside returns a function that makes a URL of the node usable from here.
func fromOutside(ctx context.Context, t *testing.T) func(address string) (string, error) {
	t.Helper()
	var mu sync.Mutex
	local := map[string]string{}
	serve := func(host string) (string, error) {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		context.AfterFunc(ctx, func() { _ = l.Close() })
		go func() {
			for {
				here, err := l.Accept()
				if err != nil {
					return
				}
				go join(ctx, here, host)
			}
		}()
		return l.Addr().String(), nil
	}
	return func(address string) (string, error) {
		u, err := neturl.Parse(address)
		if err != nil {
			return "", err
		}
		mu.Lock()
		defer mu.Unlock()
		if local[u.Host] == "" {
			if local[u.Host], err = serve(u.Host); err != nil {
				return "", err
			}
		}
		u.Host = local[u.Host]
		return u.String(), nil
	}
}

// join connects a connection to an address of the node.
func join(ctx context.Context, here net.Conn, address string) {
	there, err := suite.Dial(ctx, "tcp", address)
	if err != nil {
		_ = here.Close()
		return
	}
	ended := func() { _, _ = here.Close(), there.Close() }
	defer context.AfterFunc(ctx, ended)()
	go func() {
		_, _ = io.Copy(there, here)
		ended()
	}()
	_, _ = io.Copy(here, there)
	ended()
}

// sendInput sends as much input as a command may have to many commands, and does not end it.
func sendInput(ctx context.Context, t *testing.T) (end func() error) {
	// Twice of what the namespace can have: the clients are on this machine, too, and need its processors.
	const clients = 2 * bounds.NamespaceInputs / bounds.Input
	vm, reachable := greedyPod(t, 0).answering(), fromOutside(ctx, t)
	return attack.Gather(ctx, clients, func(ctx context.Context, _ int) error {
		reply, err := suite.cri.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: vm.id, Cmd: []string{"sha256sum"}, Stdin: true, Stdout: true})
		if err != nil {
			return err
		}
		address, err := reachable(reply.Url)
		if err != nil {
			return err
		}
		return client.Run(ctx, address, streams.Streams{In: &held{ctx, bounds.Input - 1}, Out: io.Discard})
	}).Refused(t)
}

// openStreams attaches to VMs until no more is admitted.
func openStreams(ctx context.Context, t *testing.T) (end func() error) {
	var vms []*container
	for n := range bounds.NodeNamespaceStreams/bounds.PodStreams + 1 {
		vms = append(vms, greedyPod(t, n).vm(suite.halt).start())
	}
	reachable := fromOutside(ctx, t)
	return attack.Gather(ctx, bounds.NodeNamespaceStreams+32, func(ctx context.Context, n int) error {
		reply, err := suite.cri.Attach(ctx, &runtimeapi.AttachRequest{ContainerId: vms[n%len(vms)].id, Stdin: true, Stdout: true})
		if err != nil {
			return err
		}
		address, err := reachable(reply.Url)
		if err != nil {
			return err
		}
		return client.Run(ctx, address, streams.Streams{In: &held{ctx, 0}, Out: io.Discard})
	}).Refused(t)
}

// connectSilently opens connections to the server of streams, and asks nothing. The server closes the oldest.
func connectSilently(ctx context.Context, t *testing.T) (end func() error) {
	vm := greedyPod(t, 0).vm(suite.halt).start()
	reply, err := suite.cri.Attach(ctx, &runtimeapi.AttachRequest{ContainerId: vm.id, Stdout: true})
	assert.NilError(t, err)
	u, err := neturl.Parse(reply.Url)
	assert.NilError(t, err)
	errClosed := errors.New("the server closed the connection")
	return attack.Gather(ctx, bounds.StreamConnections+64, func(ctx context.Context, _ int) error {
		conn, err := suite.Dial(ctx, "tcp", u.Host)
		if err != nil {
			return err
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		_, _ = conn.Read(make([]byte, 1))
		return errClosed
	}).Refused(t)
}

// convertImages creates VMs with raw disks of an image that takes work, and removes them, again and again.
func convertImages(ctx context.Context, t *testing.T) (end func() error) {
	const size, clients = 256 * mebibyte, 4
	raw := filepath.Join(t.TempDir(), "raw")
	assert.NilError(t, os.WriteFile(raw, bytes.Repeat([]byte("written "), size/8), 0o600))
	packed := filepath.Join(filepath.Dir(raw), "packed.qcow2")
	out, err := suite.Output(ctx, "qemu-img", "convert", "-c", "-O", "qcow2", raw, packed)
	assert.NilError(t, err, out)
	image, err := pushDisk(ctx, "packed:1", packed, images.DiskOptions{})
	assert.NilError(t, err)
	assert.NilError(t, pull(ctx, image))
	var pods []*pod
	for n := range clients {
		pods = append(pods, greedyPod(t, n, annotated(map[string]string{vmspec.AnnotationDiskMode: "disk=raw"})))
	}
	return attack.Gather(ctx, clients, func(ctx context.Context, n int) error {
		created, err := suite.cri.CreateContainer(ctx, pods[n].createRequest(pods[n].vmConfig(image)))
		if err != nil {
			return err
		}
		_, err = suite.cri.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: created.ContainerId})
		return err
	}).Waiting(t, clients)
}

// bombVMI is a VM whose checkpoint holds a disk that its guest has filled.
const bombVMI = `{"domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "data", "disk": {"bus": "virtio"}}],
	"interfaces": [{"name": "default", "masquerade": {}}]}},
	"networks": [{"name": "default", "pod": {}}],
	"volumes": [{"name": "root", "containerDisk": {"image": ""}}, {"name": "data", "emptyDisk": {"capacity": "512Mi"}}]}`

// unpackBombs creates VMs of a checkpoint of a few bytes that expand to half a GiB, and are no disk.
func unpackBombs(ctx context.Context, t *testing.T) (end func() error) {
	const clients = 8
	saved := greedyPod(t, clients, annotated(map[string]string{vmspec.AnnotationVMI: bombVMI}))
	vm := saved.vm(suite.halt).start()
	location := filepath.Join(saved.config.LogDirectory, "checkpoint.tar")
	_, err := suite.cri.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{ContainerId: vm.id, Location: location})
	assert.NilError(t, err)
	bomb := filepath.Join(saved.config.LogDirectory, "bomb.tar")
	fill(ctx, t, location, bomb)
	var pods []*pod
	for n := range clients {
		pods = append(pods, greedyPod(t, n, annotated(map[string]string{vmspec.AnnotationVMI: bombVMI})))
	}
	return attack.Gather(ctx, clients, func(ctx context.Context, n int) error {
		config := pods[n].vmConfig(suite.halt)
		config.Image.Image = bomb
		_, err := suite.cri.CreateContainer(ctx, pods[n].createRequest(config))
		return err
	}).Refused(t)
}

// fill copies a checkpoint, and replaces the content of its data disk.
func fill(ctx context.Context, t *testing.T, from, to string) {
	t.Helper()
	a, err := checkpoint.OpenArchive(from)
	assert.NilError(t, err)
	defer func() { _ = a.Close() }()
	m, err := checkpoint.Read(a)
	assert.NilError(t, err)
	memory, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	assert.NilError(t, err)
	defer memory.Close()
	assert.NilError(t, checkpoint.CopyMemory(ctx, a, m, memory))
	_, err = memory.Seek(0, io.SeekStart)
	assert.NilError(t, err)
	plain, err := checkpoint.OpenMemory(memory, m)
	assert.NilError(t, err)
	defer plain.Close()
	out, err := os.Create(to)
	assert.NilError(t, err)
	defer out.Close()
	w := checkpoint.NewWriter(out)
	m.Memory, err = w.AddMemory(plain)
	assert.NilError(t, err)
	for i, d := range m.Disks {
		content := io.LimitReader(ones{}, 512*mebibyte)
		if d.Name != "data" {
			f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
			assert.NilError(t, err)
			defer f.Close()
			assert.NilError(t, checkpoint.UnpackDisk(ctx, a, d, f))
			_, err = f.Seek(0, io.SeekStart)
			assert.NilError(t, err)
			content = f
		}
		m.Disks[i], err = w.AddDisk(d.Name, content)
		assert.NilError(t, err)
	}
	assert.NilError(t, w.Close(m))
}

// ones are bytes that are no zeros.
type ones struct{}

func (ones) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 1
	}
	return len(p), nil
}
