//go:build faults

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// pod is a pod with one VM container, as far as they were made.
type pod struct {
	name      string
	config    *runtimeapi.PodSandboxConfig
	guest     *runtimeapi.ContainerConfig
	id        string // of the sandbox
	container string
}

// password is in each pod's cloud-init data.
const password = "known-to-the-guest-alone"

func newPod(name, image string, memory int64) (*pod, error) {
	// QEMU is found by the pod's name: it must be the only one of this on the machine.
	name += "-" + strings.TrimPrefix(suite.Name(), "nodevirt-")
	p := &pod{name: name, config: &runtimeapi.PodSandboxConfig{}}
	text, err := json.Marshal(suite.NewPod(name))
	if err != nil {
		return nil, err
	}
	if err := protojson.Unmarshal(text, p.config); err != nil {
		return nil, err
	}
	p.config.Annotations = map[string]string{vmspec.AnnotationUserData: "#cloud-config\npassword: " + password + "\n"}
	p.guest = &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "guest"},
		Image:    &runtimeapi.ImageSpec{Image: image},
		LogPath:  "guest_0.log",
		Labels:   p.config.Labels,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: memory},
		},
	}
	return p, nil
}

// address is the pod's, and the guest's.
func (p *pod) address(ctx context.Context) (string, error) {
	reply, err := suite.cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
	return reply.GetStatus().GetNetwork().GetIp(), err
}

// pid is QEMU's, as the node sees it; 0 if the container does not run.
func (p *pod) pid(ctx context.Context) (int, error) {
	reply, err := suite.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: p.container, Verbose: true})
	if err != nil {
		return 0, err
	}
	var info struct{ PID int }
	if err := json.Unmarshal([]byte(reply.Info["info"]), &info); err != nil {
		return 0, fmt.Errorf("read the verbose status: %w", err)
	}
	return info.PID, nil
}

// runsCommand waits for the guest's agent, and runs a command.
func (p *pod) runsCommand(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		reply, execErr := suite.cri.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: p.container, Cmd: []string{"echo", "soaked"}})
		if execErr == nil && string(reply.Stdout) == "soaked\n" {
			return nil
		}
		err = fmt.Errorf("a command in the guest: %v, %w", reply, execErr)
		time.Sleep(200 * time.Millisecond)
	}
	return err
}

// domain is on the command line of the pod's QEMU alone, dhcp on that of its dnsmasq.
func (p *pod) domain() string { return "guest=default_" + p.name + "_" }
func (p *pod) dhcp() string   { return "/networks/" + p.container + "/dnsmasq.conf" }

// virtiofsd is on the command line of the pod's first virtiofsd alone.
func (p *pod) virtiofsd() []string { return []string{"virtiofsd\x00", "/" + p.container + "/0\x00"} }

// processes are those of the machine with texts on their command line.
func processes(texts ...string) (all []int) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range lines {
		line, err := os.ReadFile(path)
		other := func(text string) bool { return !strings.Contains(string(line), text) }
		if err != nil || slices.ContainsFunc(texts, other) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && pid != os.Getpid() {
			all = append(all, pid)
		}
	}
	return all
}

func runs(text string) bool { return len(processes(text)) > 0 }

// killAll kills what has texts on its command line, and reports whether there was any.
func killAll(texts ...string) bool {
	hit := false
	for _, pid := range processes(texts...) {
		hit = syscall.Kill(pid, syscall.SIGKILL) == nil || hit
	}
	return hit
}
