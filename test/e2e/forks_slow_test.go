//go:build slow

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/wait"
)

// fork is a guest that goes on from a checkpoint which others go on from too.
type fork struct {
	*container

	name string
}

// ramOf returns how many KiB of a guest's RAM are QEMU's own, and how many are others' too.
func ramOf(t *testing.T, pid int) (own, shared int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(procOf(pid), "smaps"))
	assert.NilError(t, err)
	found := false
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if strings.Contains(fields[0], "-") {
			found = strings.Contains(line, "memfd:nodevirt-ram")
		}
		if !found || len(fields) != 3 {
			continue
		}
		n, err := strconv.Atoi(fields[1])
		assert.NilError(t, err, line)
		switch fields[0] {
		case "Anonymous:": // Private_Dirty has pages of the memfd that no other process has mapped yet
			own += n
		case "Rss:":
			shared += n
		}
	}
	return own, shared - own
}

// TestForks starts three guests from one that has booted. Each has its own disks and memory, and shares
// what it does not write.
func TestForks(t *testing.T) {
	t.Parallel()
	p := savedPod(t, "template")
	begun := time.Now()
	c := p.create(savedConfig(p, suite.agent)).start().up()
	c.agentIs(agent.Present)
	boots := time.Since(begun)
	boot := c.sh("cat /proc/sys/kernel/random/boot_id")
	// Memory that the forks have in common, and that none of them writes.
	c.sh("dd if=/dev/urandom of=/tmp/common bs=1M count=32 2>/dev/null; echo template | dd of=/dev/vdb conv=fsync 2>/dev/null")
	common := c.sh("sha256sum </tmp/common")
	location := filepath.Join(p.config.LogDirectory, "checkpoint.tar")
	assert.NilError(t, c.save(location))
	disk, err := guest.TinyWithAgent(t.Context(), suite.GuestOptions())
	assert.NilError(t, err)
	ref, err := pushDisk(t.Context(), "forks:1", disk, images.DiskOptions{Above: [][]images.File{extract(t, location)}})
	assert.NilError(t, err)
	assert.NilError(t, os.Remove(location))
	assert.NilError(t, pull(t.Context(), ref))

	read := func(f fork) string { return f.sh("head -n 1 /dev/vdb; cat /tmp/own 2>/dev/null") }
	var all []fork
	for n := range 3 {
		p := savedPod(t, fmt.Sprintf("fork-%d", n))
		begun := time.Now()
		f := fork{p.create(savedConfig(p, ref)).start(), p.config.Metadata.Name}
		f.agentIs(agent.Present)
		t.Logf("%s answers after %s; a boot takes %s", f.name, time.Since(begun), boots)
		all = append(all, f)
	}
	for _, f := range all {
		assert.Equal(t, f.sh("cat /proc/sys/kernel/random/boot_id"), boot)
		assert.Equal(t, read(f), "template")
		f.sh("echo " + f.name + " >/tmp/own; echo " + f.name + " | dd of=/dev/vdb conv=fsync 2>/dev/null")
	}
	for _, f := range all {
		f.sh("echo 3 >/proc/sys/vm/drop_caches")
		assert.Equal(t, read(f), f.name+"\n"+f.name)
		assert.Equal(t, f.sh("sha256sum </tmp/common"), common)
		own, shared := ramOf(t, f.info().PID)
		t.Logf("%s has %d KiB of RAM, and %d KiB beside others", f.name, own, shared)
		if ram := guestMemory >> 10; shared < 32<<10 || own > ram/2 {
			t.Errorf("%s: %d KiB of RAM are its own, and %d KiB are shared", f.name, own, shared)
		}
	}
	assert.Equal(t, c.sh("head -n 1 /dev/vdb"), "template")

	// A fork is a VM like others: what it saves has all of its memory.
	first := all[0]
	again := filepath.Join(p.config.LogDirectory, "again.tar")
	assert.NilError(t, first.save(again))
	r := savedPod(t, "again")
	last := fork{r.create(savedConfig(r, again)).start(), first.name}
	last.agentIs(agent.Present)
	assert.Equal(t, read(last), first.name+"\n"+first.name)
	assert.Equal(t, last.sh("sha256sum </tmp/common"), common)
	assert.NilError(t, os.Remove(again))
}

// identity is what must differ between guests from one checkpoint.
type identity struct{ Host, Machine, Instance, Key, Random string }

// identityOf reads a guest's identity. Random is read first, before its own processes use random bytes.
func identityOf(t *testing.T, c *container) identity {
	t.Helper()
	lines := strings.Split(c.sh("head -c 16 /dev/urandom | hexdump -v -e '1/1 \"%02x\"'; echo; hostname; cat /etc/machine-id; "+
		"cat /run/seed.instance-id 2>/dev/null || echo none; cat /run/sshd/key.pub"), "\n")
	assert.Equal(t, len(lines), 5, "%q", lines)
	return identity{Random: lines[0], Host: lines[1], Machine: lines[2], Instance: lines[3], Key: lines[4]}
}

// TestForkIdentity: guests from one checkpoint that have the program for it have their pods' host names, other
// keys, and other random numbers, as soon as their containers have started.
func TestForkIdentity(t *testing.T) {
	t.Parallel()
	disk, err := guest.TinyToFork(t.Context(), suite.GuestOptions())
	assert.NilError(t, err)
	image, err := pushDisk(t.Context(), "to-fork:1", disk, images.DiskOptions{})
	assert.NilError(t, err)
	assert.NilError(t, pull(t.Context(), image))
	pod := func(name string) *pod {
		return vmPod(t, named(name), annotated(map[string]string{"nodevirt.io/vmi": savedVMI}), func(c *runtimeapi.PodSandboxConfig) { c.Hostname = name })
	}
	p := pod("identity")
	c := p.create(savedConfig(p, image)).start().up()
	c.agentIs(agent.Present)
	wait.Until(t, "the guest has its SSH key", func() bool { return c.sh("cat /run/sshd/key.pub 2>/dev/null") != "" })
	location := filepath.Join(p.config.LogDirectory, "checkpoint.tar")
	assert.NilError(t, c.save(location))
	before := identityOf(t, c)
	assert.Equal(t, before.Host, "identity")

	all := []identity{before}
	for n := range 2 {
		name := fmt.Sprintf("identity-%d", n)
		p := pod(name)
		f := p.create(savedConfig(p, location)).start()
		id := identityOf(t, f)
		assert.Equal(t, id.Host, name)
		assert.Equal(t, id.Instance, p.config.Metadata.Name+"."+p.config.Metadata.Namespace)
		assert.Equal(t, len(id.Machine), 32, id.Machine)
		wait.Until(t, "the lease is of its own pod", func() bool {
			return f.sh("grep ^hostname= /run/dhcp.eth0") == "hostname="+name
		})
		// The kernel's own, by the VM generation ID: the program's entropy alone would have no effect yet.
		wait.Until(t, "the kernel renews its random numbers", func() bool {
			return f.sh("dmesg | grep -c 'crng reseeded due to virtual machine fork'") == "1"
		})
		assert.Equal(t, f.info().VM.Fork.Reason, "Renewed")
		all = append(all, id)
	}
	for i, one := range all {
		for _, other := range all[:i] {
			if one.Host == other.Host || one.Machine == other.Machine || one.Key == other.Key || one.Random == other.Random {
				t.Errorf("two guests have something in common:\n%+v\n%+v", one, other)
			}
		}
	}
}
