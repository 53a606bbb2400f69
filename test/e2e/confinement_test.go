package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestTheMachineIsConfined(t *testing.T) {
	t.Parallel()
	p, second := vmPod(t), vmPod(t, named("second"))
	c := p.vm(suite.halt, func(c *runtimeapi.ContainerConfig) {
		c.Linux.Resources.CpuPeriod, c.Linux.Resources.CpuQuota = 100_000, 150_000
	}).start()
	info := c.info()
	status := processStatus(t, info.PID)
	uid := strconv.Itoa(info.VM.Domain.UID)
	if want := strings.Join([]string{uid, uid, uid, uid}, "\t"); uid == "0" || status["Uid"] != want {
		t.Errorf("QEMU's users: %q; want %q", status["Uid"], want)
	}
	if status["Groups"] != strconv.Itoa(info.VM.Domain.GID) || info.VM.Domain.GID == 0 {
		t.Errorf("QEMU's further groups: %q", status["Groups"])
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapAmb"} {
		if strings.Trim(status[set], "0") != "" {
			t.Errorf("QEMU has capabilities: %s %s", set, status[set])
		}
	}
	if status["Seccomp"] != "2" {
		t.Errorf("QEMU's seccomp mode is %s", status["Seccomp"])
	}
	if other := second.vm(suite.halt).start().info(); other.VM.Domain.UID == info.VM.Domain.UID {
		t.Errorf("two VMs share the user %d", info.VM.Domain.UID)
	}

	group := strings.TrimPrefix(filepath.Join(p.config.Linux.CgroupParent, c.id), "/")
	members := members(t, group)
	names := map[string]int{}
	for _, pid := range members {
		names[processStatus(t, pid)["Name"]]++
	}
	if names["dnsmasq"] != 1 || names["qemu-system-x86"] != 1 || len(members) != 2 {
		t.Errorf("in the VM's cgroup there are %v", names)
	}
	if got := setting(t, group, "memory/%s/memory.limit_in_bytes", "%s/memory.max"); got != fmt.Sprint(guestMemory+overhead) {
		t.Errorf("memory limit: %s; want %d", got, guestMemory+overhead)
	}
	if got := setting(t, group, "cpu/%s/cpu.cfs_quota_us", "%s/cpu.max"); !strings.HasPrefix(got, "150000") {
		t.Errorf("CPU quota: %s", got)
	}
}

// procOf is the /proc folder of a process of the node.
func procOf(pid int) string {
	return fmt.Sprintf("/proc/%d/root/proc/%d", suite.PID(), pid)
}

func processStatus(t *testing.T, pid int) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(procOf(pid), "status"))
	assert.NilError(t, err)
	fields := map[string]string{}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		fields[key] = strings.TrimSpace(value)
	}
	return fields
}

// members are the processes of the node that are in a cgroup, of whichever version.
func members(t *testing.T, group string) (pids []int) {
	t.Helper()
	all, err := os.ReadDir(filepath.Dir(procOf(1)))
	assert.NilError(t, err)
	for _, e := range all {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(procOf(pid), "cgroup"))
		if err != nil {
			continue // it ended
		}
		for line := range strings.Lines(string(text)) {
			// See cgroups(7): number, controllers, path.
			if f := strings.SplitN(strings.TrimSpace(line), ":", 3); (f[1] == "memory" || f[0] == "0") && f[2] == "/"+group {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

// setting reads a cgroup's file, by its path in version 1 or 2.
func setting(t *testing.T, group, v1, v2 string) string {
	t.Helper()
	for _, path := range []string{v1, v2} {
		if text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", fmt.Sprintf(path, group))); err == nil {
			return strings.TrimSpace(string(text))
		}
	}
	t.Fatalf("no cgroup %s", group)
	return ""
}
