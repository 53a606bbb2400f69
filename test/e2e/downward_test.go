package e2e

import (
	"strconv"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/test/wait"
)

// TestDownwardMetrics: a guest reads the node's metrics, which get newer, on a disk that it can't write.
func TestDownwardMetrics(t *testing.T) {
	t.Parallel()
	vm := vmPod(t, annotated(map[string]string{"nodevirt.io/downward-metrics": "", "nodevirt.io/vmi": `{
		"domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "metrics", "disk": {"bus": "virtio"}}]}},
		"volumes": [{"name": "root", "containerDisk": {"image": "r"}}, {"name": "metrics", "downwardMetrics": {}}]}`,
	})).vm(suite.tiny).start().up()
	vm.post("/cgi-bin/program", shell)
	const metric = "blockdev --flushbufs /dev/vdb; dd if=/dev/vdb bs=4096 count=4 2>/dev/null | tr -d '\\000' | grep -A1 'NAME' | sed -n 's/.*<value>\\(.*\\)<.*/\\1/p'\n"
	read := func(name string) []string { return strings.Fields(vm.runs(strings.ReplaceAll(metric, "NAME", name))) }
	latest := func() int {
		values := read("<name>Time<")
		if len(values) != 1 {
			return 0
		}
		n, _ := strconv.Atoi(values[0])
		return n
	}
	wait.Until(t, "the disk has metrics", func() bool { return latest() > 0 })
	first := latest()
	wait.Until(t, "the metrics are newer", func() bool { return latest() > first })
	if times := read("TotalCPUTime"); len(times) != 2 {
		t.Errorf("the CPU times of the node and of the VM are %q", times)
	}
	if got := vm.runs("dd if=/dev/vdb bs=4 count=1 2>/dev/null; blockdev --getsize64 /dev/vdb; echo x 2>/dev/null >/dev/vdb || echo refused\n"); got != "mvbd262144\nrefused\n" {
		t.Errorf("the disk says %q", got)
	}
}
