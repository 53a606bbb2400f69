//go:build slow

package e2e

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/test/wait"
)

// online has a Linux guest use the vCPUs and the memory that it got, as udev's rules do in others.
const online = `for f in /sys/devices/system/cpu/cpu*/online; do echo 1 >$f; done
for f in /sys/devices/system/memory/memory*/state; do grep -q offline $f && echo online >$f; done
true`

// TestUpdateGrows: a guest whose VM has room gets vCPUs and RAM by higher limits, and keeps them through a
// restart of the shim and its own.
func TestUpdateGrows(t *testing.T) {
	t.Parallel()
	const ram, more = 384 * mebibyte, 256 * mebibyte
	c := vmPod(t, annotated(map[string]string{"nodevirt.io/vmi": `{"domain": {"cpu": {"maxSockets": 2}, "memory": {"maxGuest": "1Gi"},
		"devices": {"disks": [{"name": "root"}]}}, "volumes": [{"name": "root", "containerDisk": {"image": ""}}]}`})).
		vm(suite.agent, func(c *runtimeapi.ContainerConfig) {
			c.Linux.Resources = &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: ram, CpuPeriod: 100_000, CpuQuota: 100_000}
		}).start().up()
	c.agentIs(agent.Present)
	before := c.guest()
	assert.Equal(t, before.CPUs, 1)

	assert.NilError(t, c.update(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: ram + more, CpuQuota: 200_000}))
	c.wantSettings(200_000, ram+more)
	grown := func(when string) {
		t.Helper()
		wait.Until(t, "the guest has more "+when, func() bool {
			c.exec("sh", "-c", online)
			g := c.guest()
			return g.CPUs == 2 && g.Memory >= before.Memory+more*9/10
		})
	}
	grown("after the update")
	err := c.update(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1100 * mebibyte})
	if status.Code(err) != codes.OutOfRange || !strings.Contains(err.Error(), "to 1Gi") {
		t.Errorf("beyond the maximum: %v", err)
	}
	c.reboots()
	c.agentIs(agent.Present)
	grown("after a reboot")
	// The guest may need longer than it gets beside other guests. The kubelet asks again, too.
	wait.Success(t, "the guest releases RAM", func(context.Context) error {
		return c.update(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: ram})
	})
	c.wantSettings(200_000, ram)
}
