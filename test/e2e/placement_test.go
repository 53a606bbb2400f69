package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// nrHugePages is the size of the node's pool of huge pages.
const nrHugePages = "/proc/sys/vm/nr_hugepages"

// TestPlacement boots a guest of huge pages, on one processor and then on another. The BIOS writes to
// the serial console too. The node may have no huge pages, so the test makes them: it is not parallel.
func TestPlacement(t *testing.T) {
	had, err := os.ReadFile(nrHugePages)
	assert.NilError(t, err)
	pool, err := strconv.Atoi(strings.TrimSpace(string(had)))
	assert.NilError(t, err)
	t.Cleanup(func() { assert.NilError(t, os.WriteFile(nrHugePages, had, 0)) })
	const pages = guestMemory / (2 * mebibyte)
	assert.NilError(t, os.WriteFile(nrHugePages, []byte(strconv.Itoa(pool+pages)), 0))

	c := withoutDisk(t, `{
		"domain": {
			"cpu": {"cores": 1, "dedicatedCpuPlacement": true},
			"memory": {"guest": "128Mi", "hugepages": {"pageSize": "2Mi"}},
			"firmware": {"bootloader": {"bios": {"useSerial": true}}},
			"devices": {"useVirtioTransitional": true, "rng": {}, "sound": {"name": "card"}, "disks": [{"name": "root", "disk": {"bus": "virtio"}}]}
		},
		"volumes": [{"name": "root", "containerDisk": {"image": "`+suite.tiny+`"}}]
	}`).vm(suite.tiny, func(c *runtimeapi.ContainerConfig) {
		c.Linux.Resources = &runtimeapi.LinuxContainerResources{
			CpusetCpus: "0", MemoryLimitInBytes: mebibyte,
			HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: guestMemory}},
		}
	}).start()
	c.saying("SeaBIOS")
	c.saying("nodevirt guest: up host=") // after what the BIOS has written
	wantCPU(t, c.pid(), "0")
	used := strings.Fields(inNode(t, "grep", "HugetlbPages", fmt.Sprintf("/proc/%d/status", c.pid())))
	if len(used) < 2 || used[1] == "0" {
		t.Errorf("the guest has no huge pages: %q", used)
	}
	shell := c.attach("-i")
	shell.types("echo board $(cat /sys/class/dmi/id/sys_vendor) $(cat /sys/class/dmi/id/product_family) $((40 + 2))\r")
	shell.sees("board KubeVirt KubeVirt 42")

	assert.NilError(t, c.update(&runtimeapi.LinuxContainerResources{CpusetCpus: "1"}))
	wantCPU(t, c.pid(), "1")
}

// wantCPU checks the processors of a guest's only vCPU.
func wantCPU(t *testing.T, qemu int, want string) {
	t.Helper()
	got := inNode(t, "sh", "-c", fmt.Sprintf("for t in /proc/%d/task/*; do grep -q '^CPU 0/' $t/comm && grep Cpus_allowed_list $t/status; done; true", qemu))
	if strings.Join(strings.Fields(got), " ") != "Cpus_allowed_list: "+want {
		t.Errorf("the vCPU runs on %q, want %s", got, want)
	}
}
