package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// vm is a VM that was started, and goes with its test.
type vm struct {
	*suite
	t   *testing.T
	id  string
	log string // path
	raw string // path of the file that QEMU writes
}

// tickingVMI has the ticking guest tick.
var tickingVMI = fmt.Sprintf(`{"domain": {
	"firmware": {"kernelBoot": {"kernelArgs": %q, "container": {"kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd"}}},
	"devices": {"disks": [{"name": "d", "disk": {"bus": "virtio"}}], "interfaces": [{"name": "default", "bridge": {}}]}},
	"networks": [{"name": "default", "pod": {}}],
	"volumes": [{"name": "d", "containerDisk": {"path": "/disk/disk.qcow2"}}]}`, guest.Cmdline+" nodevirt.tick")

// start starts a VM in a new pod; vmi may be empty.
func (s *suite) start(t *testing.T, name, image, vmi string) *vm {
	t.Helper()
	p := s.n.NewPod(name)
	memory := 16 << 20
	if vmi != "" {
		p["annotations"] = map[string]any{"nodevirt.io/vmi": vmi}
		memory = 128 << 20
	}
	pod, err := s.n.RunPod(t.Context(), p, "vm")
	assert.NilError(t, err)
	t.Cleanup(func() {
		if err := s.n.RemovePod(detached(t), pod, p); err != nil {
			t.Error(err)
		}
	})
	c := node.NewContainer("guest", image)
	c["linux"] = map[string]any{"resources": map[string]any{"memory_limit_in_bytes": memory}}
	id, err := s.n.CreateContainer(t.Context(), pod, p, c)
	assert.NilError(t, err)
	v := &vm{suite: s, t: t, id: id, log: filepath.Join(p["log_directory"].(string), "guest_0.log")}
	v.crictl("start", id)
	var inspect struct {
		Info struct{ VM struct{ Folder string } }
	}
	assert.NilError(t, json.Unmarshal([]byte(v.crictl("inspect", id)), &inspect))
	v.raw = filepath.Join(inspect.Info.VM.Folder, "console")
	return v
}

func (v *vm) crictl(args ...string) string {
	v.t.Helper()
	out, err := v.n.Crictl(v.t.Context(), args...)
	assert.NilError(v.t, err)
	return out
}

func (v *vm) status() *runtimeapi.ContainerStatus {
	v.t.Helper()
	reply, err := v.cri.ContainerStatus(v.t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: v.id})
	assert.NilError(v.t, err)
	return reply.GetStatus()
}

func (v *vm) ended() bool {
	return v.status().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
}

// printed is how many bytes the guest has printed so far, and how many of them the disk holds.
func (v *vm) printed() (size, held int64) {
	v.t.Helper()
	info, err := os.Stat(v.raw)
	assert.NilError(v.t, err)
	return info.Size(), info.Sys().(*syscall.Stat_t).Blocks * 512
}

// rotate does what the kubelet does, and returns the rotated log's path.
func (v *vm) rotate(n int) (rotated string) {
	v.t.Helper()
	rotated = fmt.Sprintf("%s.rotated-%d", v.log, n)
	assert.NilError(v.t, os.Rename(v.log, rotated))
	_, err := v.cri.ReopenContainerLog(v.t.Context(), &runtimeapi.ReopenContainerLogRequest{ContainerId: v.id})
	assert.NilError(v.t, err)
	return rotated
}

// says waits until the log has a line that matches.
func (v *vm) says(pattern string) {
	v.t.Helper()
	re := regexp.MustCompile("(?m)" + pattern)
	wait.Until(v.t, "the guest says "+pattern, func() bool { return re.Match(v.said(v.log)) })
}

var record = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z stdout ([FP]) `)

// said are the bytes that logs hold, one log after the other. A record that is not whole yet is left out.
func (v *vm) said(logs ...string) (text []byte) {
	v.t.Helper()
	for _, path := range logs {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it is put aside just now, and another comes
		}
		assert.NilError(v.t, err)
		for line := range bytes.Lines(data[:bytes.LastIndexByte(data, '\n')+1]) {
			m := record.FindSubmatch(line)
			switch {
			case m == nil:
				v.t.Fatalf("%s has the line %.100q", path, line)
			case string(m[1]) == "P":
				text = append(text, bytes.TrimSuffix(line[len(m[0]):], []byte("\n"))...)
			default:
				text = append(text, line[len(m[0]):]...)
			}
		}
	}
	return text
}

var tick = regexp.MustCompile(`(?m)nodevirt guest: tick (\d+)\r?$`)

// ticks are the numbers of the ticks in a text; they must follow each other, from 1.
func (v *vm) ticks(text []byte) int {
	v.t.Helper()
	n := 0
	for _, m := range tick.FindAllSubmatch(text, -1) {
		if n++; string(m[1]) != strconv.Itoa(n) {
			v.t.Fatalf("tick %s comes as number %d", m[1], n)
		}
	}
	return n
}

// lines are those of a command's output.
func lines(out string) []string {
	return strings.Split(strings.TrimSuffix(out, "\n"), "\n")
}
