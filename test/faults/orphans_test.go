//go:build faults

package faults

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/node"
)

// killOrphans ends what a containerd leaves that was killed in RunPodSandbox, and never looks for
// again: the shim, of its own, of a sandbox that it has no record of. Nothing of ours is among it.
func (r *round) killOrphans(ctx context.Context) error {
	killed := func(k kill) bool { return k.victim == node.Containerd }
	if r.at > 0 || !slices.ContainsFunc(r.kills, killed) {
		return nil
	}
	reply, err := suite.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	for _, pid := range processes("containerd-shim-runc-v2\x00-namespace\x00k8s.io\x00-id\x00") {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		known := func(s *runtimeapi.PodSandbox) bool { return strings.Contains(string(line), s.Id) }
		if err != nil || !inNode(pid) || slices.ContainsFunc(reply.Items, known) {
			continue
		}
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		for text := range strings.FieldsSeq(string(children)) {
			if child, err := strconv.Atoi(text); err == nil {
				_ = syscall.Kill(child, syscall.SIGKILL) // it may have ended
			}
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return nil
}

// inNode tells whether a process of the machine is one of the node's.
func inNode(pid int) bool {
	ours, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", suite.PID()))
	its, itsErr := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	return err == nil && itsErr == nil && ours == its
}
