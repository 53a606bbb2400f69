//go:build slow

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/wait"
)

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
