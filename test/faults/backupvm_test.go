//go:build faults

package faults

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	orders "github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/records"
	"github.com/nodevirt/nodevirt/test/wait"
)

// The disks that are copied: records at their beginning, and random bytes, so that a copy takes a while.
const (
	copiedBytes  = 32 << 20
	copiedMemory = 256 << 20
)

// backupVM is a VM with an agent and two disks, and the pod with the volume for their copies. Its guest writes
// records to both disks, one after the other, for ever, and flushes each.
type backupVM struct {
	*round
	image, busybox string
	attachment     *pod
	files, device  string // the disks on the node
	folder         string // the volume
	url            string
	boots          int

	next    atomic.Int64 // the record that is not flushed on both disks yet
	slowest atomic.Int64 // how long a probe took at most since the guest works, in nanoseconds
	stop    func()       // ends the guest's work
}

// backupVMI has a card that is not the pod's, so that its memory can be saved.
const backupVMI = `{
	"domain": {"devices": {"disks": [
		{"name": "root", "disk": {"bus": "virtio"}}, {"name": "files", "disk": {"bus": "virtio"}}, {"name": "block", "disk": {"bus": "virtio"}}],
		"interfaces": [{"name": "default", "masquerade": {}}]}},
	"networks": [{"name": "default", "pod": {}}],
	"volumes": [{"name": "root", "containerDisk": {"image": "r"}}, {"name": "files", "persistentVolumeClaim": {"claimName": "a"}},
		{"name": "block", "persistentVolumeClaim": {"claimName": "b"}}]}`

// recorder is the guest's program. A frozen guest lets no probe end.
const recorder = `#!/bin/sh
export PATH=/bin
set -e
read -r action n
case $action in
write)
	cat >/run/record
	for disk in vdb vdc; do dd if=/run/record of=/dev/$disk bs=4k seek=$n conv=notrunc,fsync 2>/dev/null; done
	;;
probe) echo >/data/probe ;;
mounted) grep -q ' /data ext4 ' /proc/mounts ;;
esac
`

// newBackupVM prepares a VM, whose round the caller sets.
func newBackupVM(t *testing.T) *backupVM {
	t.Helper()
	ctx := t.Context()
	disk, err := guest.TinyWithAgent(ctx, suite.GuestOptions())
	assert.NilError(t, err)
	b := &backupVM{device: loopfs.Device(t, copiedBytes), folder: t.TempDir(), stop: func() {}}
	b.image, err = pushDisk(ctx, "tiny-agent:1", disk)
	assert.NilError(t, err)
	b.busybox, err = suite.PushBusybox(ctx)
	assert.NilError(t, err)
	pull := &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: b.busybox}}
	_, err = runtimeapi.NewImageServiceClient(suite.conn).PullImage(ctx, pull)
	assert.NilError(t, err)
	b.files = filepath.Join(t.TempDir(), "disk.img")
	for _, path := range b.disks() {
		content := make([]byte, copiedBytes)
		_, err := rand.Read(content)
		assert.NilError(t, err)
		assert.NilError(t, os.WriteFile(path, content, 0o600))
	}
	return b
}

func (b *backupVM) disks() []string { return []string{b.files, b.device} }

// boot starts the VM, the pod with the volume, and the guest's work.
func (b *backupVM) boot(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	var err error
	b.boots++
	b.begun = time.Now()
	b.pod, err = newPod(fmt.Sprintf("copied-%d", b.boots), b.image, copiedMemory)
	assert.NilError(t, err)
	b.config.Annotations = map[string]string{vmspec.AnnotationVMI: backupVMI}
	b.guest.Devices = []*runtimeapi.Device{{ContainerPath: "/dev/block", HostPath: b.device, Permissions: "mrw"}}
	b.guest.Mounts = []*runtimeapi.Mount{{ContainerPath: "/volumes/files", HostPath: filepath.Dir(b.files)}}
	b.does(t, life[:started]...)
	b.attachment, err = newPod(fmt.Sprintf("copies-%d", b.boots), b.busybox, 0)
	assert.NilError(t, err)
	b.attachment.guest.Command = []string{"sleep", "1000000"}
	b.attachment.guest.Mounts = []*runtimeapi.Mount{{ContainerPath: "/volumes/copies", HostPath: b.folder}}
	assert.NilError(t, b.attachment.runAnnotated(ctx, map[string]string{orders.Annotation: b.config.Metadata.Uid}))
	ip, err := b.address(ctx)
	assert.NilError(t, err)
	b.url = "http://" + ip + "/cgi-bin/run"
	wait.Success(t, "the guest has its program and its file system", func(ctx context.Context) error {
		if _, err := suite.Fetch(ctx, http.MethodPost, "http://"+ip+"/cgi-bin/program", recorder); err != nil {
			return err
		}
		return b.asks(ctx, "mounted\n")
	})
	assert.NilError(t, b.runsCommand(ctx))
	b.work(t)
}

// runAnnotated runs an ordinary pod of one container.
func (p *pod) runAnnotated(ctx context.Context, annotations map[string]string) error {
	p.config.Annotations = annotations
	reply, err := suite.cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.config})
	if err != nil {
		return err
	}
	p.id = reply.PodSandboxId
	for _, c := range life[1:started] {
		if err := c.do(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// asks has the guest run its program.
func (b *backupVM) asks(ctx context.Context, input string) error {
	_, err := suite.Fetch(ctx, http.MethodPost, b.url, input)
	return err
}

// work has the guest write records and probe its file system until stop is called, which waits for the end of
// both. The guest is not asked again after an error: its QEMU was killed, or the test fails.
func (b *backupVM) work(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // a guest works on after a round
	url, end := b.url, make(chan struct{})
	var working sync.WaitGroup
	again := func(do func() error) {
		working.Go(func() {
			for err := error(nil); err == nil; err = do() {
				select {
				case <-end:
					return
				default:
				}
			}
		})
	}
	b.slowest.Store(0)
	again(func() error {
		n := b.next.Load()
		_, err := suite.Fetch(ctx, http.MethodPost, url, fmt.Sprintf("write %d\n%s", n%records.Most, records.Text(n)))
		if err == nil {
			b.next.Store(n + 1)
		}
		return err
	})
	again(func() error {
		asked := time.Now()
		_, err := suite.Fetch(ctx, http.MethodPost, url, "probe\n")
		b.slowest.Store(max(b.slowest.Load(), int64(time.Since(asked))))
		time.Sleep(50 * time.Millisecond)
		return err
	})
	b.stop = sync.OnceFunc(func() {
		close(end)
		working.Wait()
	})
}

// leave removes the VM and the pod with the volume.
func (b *backupVM) leave(ctx context.Context) error {
	b.stop()
	return errors.Join(b.remove(ctx), converge(ctx, b.attachment.removeOrdinary))
}

// dial connects to the shim, as a controller does by the kubelet.
func (b *backupVM) dial(t *testing.T) runtimeapi.RuntimeServiceClient {
	t.Helper()
	conn, err := node.DialCRI(suite.ShimSocket())
	assert.NilError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return runtimeapi.NewRuntimeServiceClient(conn)
}

// control gives the VM an order, and returns the answer.
func (b *backupVM) control(ctx context.Context, by runtimeapi.RuntimeServiceClient, name, argument string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	reply, err := by.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: b.container, Cmd: []string{"nodevirt.io/" + name, argument}, Timeout: 30})
	if err == nil && reply.ExitCode != 0 {
		err = fmt.Errorf("%s: code %d: %s", name, reply.ExitCode, reply.Stderr)
	}
	return string(reply.GetStdout()), err
}

// order is control with an argument and an answer in JSON.
func order[T any](ctx context.Context, b *backupVM, by runtimeapi.RuntimeServiceClient, name string, argument any) (answer T, err error) {
	text, err := json.Marshal(argument)
	if err != nil {
		return answer, err
	}
	reply, err := b.control(ctx, by, name, string(text))
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal([]byte(reply), &answer)
}

// ended reports whether the VM's container has ended.
func (b *backupVM) ended(ctx context.Context) bool {
	reply, err := suite.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: b.container})
	return err == nil && reply.Status.State == runtimeapi.ContainerState_CONTAINER_EXITED
}
