package migration

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/migrate/handover"
	"github.com/nodevirt/nodevirt/shim/podstatus/condition"
	"github.com/nodevirt/nodevirt/test/loopfs"
	"github.com/nodevirt/nodevirt/test/wait"
)

const stateful = `{
	"domain": {"devices": {
		"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "data", "disk": {"bus": "virtio"}, "tag": "data"},
			{"name": "drive", "disk": {"bus": "virtio"}}],
		"interfaces": [{"name": "default", "masquerade": {}, "tag": "lan"}],
		"tpm": {}
	}},
	"networks": [{"name": "default", "pod": {}}],
	"volumes": [{"name": "root", "containerDisk": {"image": "r"}}, {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
		{"name": "drive", "cloudInitConfigDrive": {"userData": "#cloud-config\n"}}]
}`

// tags is a line that shows the devices with tags on the guest's config drive.
const tags = "echo 3 >/proc/sys/vm/drop_caches; mkdir -p /tmp/drive && mount -o ro -t iso9660 /dev/vdc /tmp/drive && " +
	"grep -o '\"devices\":[^]]*].*}]' /tmp/drive/openstack/latest/meta_data.json; umount /tmp/drive"

// TestState moves a guest with a device that both nodes have, and with a TPM. What it wrote to the
// device before and after is there, the TPM is the same, its config drive has the same
// devices with tags, and the logs of both pods have every line of its console once.
func TestState(t *testing.T) {
	a, b := newNodes(t)
	device := loopfs.Device(t, 64<<20)
	for _, m := range []*machine{a, b} {
		m.vmi = stateful
		m.devices = []any{map[string]any{"container_path": "/dev/data", "host_path": device, "permissions": "mrw"}}
	}
	first := a.pod(t, "first", "")
	first.start()
	first.answers()
	const measured = "cat /sys/class/tpm/tpm0/pcr-sha256/0"
	pcr := first.sh(measured)
	tagged := first.sh(tags)
	if !strings.Contains(tagged, `"tags":["data"]`) || !strings.Contains(tagged, `"tags":["lan"]`) {
		t.Errorf("the config drive has the devices %q", tagged)
	}
	first.sh("dd if=/dev/urandom of=/tmp/r bs=64k count=64 2>/dev/null; dd if=/tmp/r of=/dev/vdb bs=64k seek=100 conv=fsync 2>/dev/null")
	first.sh("(i=0; while :; do echo tick $((i += 1)) tock; sleep 0.05; done) >/dev/ttyS0 2>&1 &")

	migration, second := begin(t, first, b, "second", 0)
	if s := first.ended(); s.Reason != condition.ReasonMigrated || s.ExitCode != 0 {
		t.Fatalf("the source ended with %d, %s, %q", s.ExitCode, s.Reason, s.Message)
	}
	if r := second.over(migration.Migration); r.State != string(handover.Taken) {
		t.Errorf("the target reports %+v", r)
	}
	second.answers()
	if got := second.sh(measured); got != pcr || got == "" {
		t.Errorf("the TPM has measured %q, and had %q", got, pcr)
	}
	if got := second.sh(tags); got != tagged {
		t.Errorf("the config drive has the devices %q, and had %q", got, tagged)
	}
	const read = "echo 3 >/proc/sys/vm/drop_caches; dd if=/dev/vdb bs=64k skip=100 count=64 2>/dev/null | sha256sum"
	if got, want := second.sh(read), second.sh("sha256sum </tmp/r"); got != want {
		t.Errorf("the device has %s, and the guest wrote %s", got, want)
	}
	second.sh("dd if=/tmp/r of=/dev/vdb bs=64k seek=300 conv=fsync 2>/dev/null")
	sent := ticks(t, first.console(t))
	wait.Until(t, "the guest goes on", func() bool { return len(ticks(t, second.console(t))) > 5 })
	all := ticks(t, first.console(t)+second.console(t))
	for i, n := range all {
		if n != i+1 {
			t.Fatalf("after %d lines in the source's log, line %d of both is tick %d", len(sent), i+1, n)
		}
	}
	first.remove()
	second.stop()
	second.remove()
	f, err := os.Open(device)
	assert.NilError(t, err)
	defer f.Close()
	left := make([]byte, 64<<10)
	_, err = f.ReadAt(left, 300*64<<10)
	assert.NilError(t, err)
	if strings.Trim(string(left), "\x00") == "" {
		t.Error("what the guest wrote on the target is not on the device")
	}
}

// console returns what a VM's log has of its console.
func (v *vm) console(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(v.config["log_directory"].(string), "guest_0.log"))
	assert.NilError(t, err)
	var said strings.Builder
	for line := range strings.Lines(string(text)) {
		record := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4) // time, stream, tag, text
		if len(record) < 4 {
			continue // it is being written
		}
		said.WriteString(record[3])
		if record[2] == "F" {
			said.WriteByte('\n')
		}
	}
	return said.String()
}

var tick = regexp.MustCompile(`tick (\d+) tock`)

// ticks returns the numbers of a guest's lines.
func ticks(t *testing.T, text string) (all []int) {
	t.Helper()
	for _, m := range tick.FindAllStringSubmatch(text, -1) {
		n, err := strconv.Atoi(m[1])
		assert.NilError(t, err)
		all = append(all, n)
	}
	return all
}
