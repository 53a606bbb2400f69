package lazy

import (
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/shim/vminfo"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// vmi stops the guest at errors of its disk, as KubeVirt's VMs are.
const vmi = `{
	"domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}, "errorPolicy": "stop"}]}},
	"volumes": [{"name": "root", "containerDisk": {"image": ""}}]
}`

// vm is a running VM of the disk.
type vm struct {
	*disk
	pod string
	cfg node.Pod
	id  string
}

// boot starts a VM and waits for its agent.
func (d *disk) boot(name string) *vm {
	d.t.Helper()
	v := &vm{disk: d, cfg: d.n.NewPod(name)}
	v.cfg["annotations"] = map[string]any{"nodevirt.io/vmi": vmi}
	var err error
	v.pod, err = d.n.RunPod(d.t.Context(), v.cfg, "vm")
	assert.NilError(d.t, err)
	d.t.Cleanup(v.remove)
	text, err := json.Marshal(v.cfg)
	assert.NilError(d.t, err)
	sandbox := &runtimeapi.PodSandboxConfig{}
	assert.NilError(d.t, protojson.Unmarshal(text, sandbox))
	// Not through crictl, which would ask the registry for the image.
	made, err := d.cri.CreateContainer(d.t.Context(), &runtimeapi.CreateContainerRequest{
		PodSandboxId: v.pod, SandboxConfig: sandbox,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "guest"},
			Image:    &runtimeapi.ImageSpec{Image: d.ref},
			LogPath:  "guest_0.log",
			Linux: &runtimeapi.LinuxContainerConfig{
				Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 256 * mebibyte},
			},
		},
	})
	assert.NilError(d.t, err)
	v.id = made.ContainerId
	_, err = d.cri.StartContainer(d.t.Context(), &runtimeapi.StartContainerRequest{ContainerId: v.id})
	assert.NilError(d.t, err)
	v.sh("true")
	return v
}

// sh runs a line that may be run twice, until the agent has answered: that of a guest which boots, or
// is stopped at a disk error, does not.
func (v *vm) sh(line string) (said string) {
	v.t.Helper()
	wait.Until(v.t, "the agent answers", func() bool {
		r, err := v.cri.ExecSync(v.t.Context(), &runtimeapi.ExecSyncRequest{
			ContainerId: v.id, Cmd: []string{"sh", "-c", line}, Timeout: 120,
		})
		said = strings.TrimSpace(string(r.GetStdout()))
		return err == nil && r.ExitCode == 0
	})
	return said
}

// command reads a mebibyte of the disk and says its digest.
func (v *vm) command(percent int64) string {
	return fmt.Sprintf("dd if=/dev/vda bs=1M skip=%d count=1 2>/dev/null | sha256sum", v.block(percent))
}

// reads has the guest read a mebibyte at a percentage of the rest.
func (v *vm) reads(percent int64) {
	v.t.Helper()
	v.is(percent, v.sh(v.command(percent)))
}

// readsLater has the guest read in the background.
func (v *vm) readsLater(percent int64) {
	v.t.Helper()
	v.sh(fmt.Sprintf("(%s) >/tmp/%d 2>/dev/null </dev/null &", v.command(percent), percent))
}

// readsNow waits until the guest has read what it was asked for before.
func (v *vm) readsNow(percent int64) {
	v.t.Helper()
	v.is(percent, v.sh(fmt.Sprintf("test -s /tmp/%d && cat /tmp/%[1]d", percent)))
}

func (v *vm) is(percent int64, got string) {
	v.t.Helper()
	if want := v.sum(percent); !strings.HasPrefix(got, want) {
		v.t.Errorf("at %d %% of the rest the guest has read %q, not %q", percent, got, want)
	}
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
	ctx, cancel := cleanup(v.t)
	defer cancel()
	if err := v.n.RemovePod(ctx, v.pod, v.cfg); err != nil {
		v.t.Error(err)
	}
	v.pod = ""
}
