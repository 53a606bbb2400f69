package networks

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// bootBridge is the node's bridge of a network with its own DHCP and TFTP server.
const bootBridge = "cni3"

const bootVMI = `{
	"domain": {"devices": {"interfaces": [
		{"name": "default", "masquerade": {}}, {"name": "net1", "bridge": {}}, {"name": "net2", "bridge": {}},
		{"name": "boot", "bridge": {}, "bootOrder": 1, "macAddress": "02:00:00:00:00:61"}
	]}},
	"networks": [
		{"name": "default", "pod": {}}, {"name": "net1", "multus": {"networkName": "net1"}},
		{"name": "net2", "multus": {"networkName": "net2"}}, {"name": "boot", "multus": {"networkName": "boot"}}
	]
}`

// TestNetworkBoot boots a VM without a disk from a server on its last network.
func TestNetworkBoot(t *testing.T) {
	ctx, n := t.Context(), shared
	empty, err := images.FromFiles(v1.Config{})
	assert.NilError(t, err)
	ref, err := n.Push(ctx, "empty:1", empty)
	assert.NilError(t, err)
	p := n.NewPod("boot")
	p["annotations"] = map[string]string{"nodevirt.io/vm-container": "guest", "nodevirt.io/vmi": bootVMI}
	p["linux"].(map[string]any)["overhead"] = map[string]any{"memory_limit_in_bytes": 256 * mebibyte}
	id, err := n.RunPod(ctx, p, "vm")
	assert.NilError(t, err)
	log := serveBoot(t, n) // on the bridge, which the first pod brings
	c := node.NewContainer("guest", ref)
	c["linux"] = map[string]any{"resources": map[string]any{"memory_limit_in_bytes": 128 * mebibyte}}
	vm, err := n.CreateContainer(ctx, id, p, c)
	assert.NilError(t, err)
	if _, err := n.Crictl(ctx, "start", vm); err != nil {
		t.Fatal(err)
	}
	wait.Success(t, "what the network's program says", func(ctx context.Context) error {
		console, err := n.Crictl(ctx, "logs", vm)
		if err == nil && !strings.Contains(console, "booted from the network") {
			err = fmt.Errorf("console: %q\n--- the server's log\n%s", console, log())
		}
		return err
	})
	if !strings.Contains(log(), "DHCPACK("+bootBridge+") 10.98.3.10 02:00:00:00:00:61") {
		t.Errorf("the firmware has its address from elsewhere:\n%s", log())
	}
	assert.NilError(t, n.RemovePod(ctx, id, p))
}

// serveBoot serves a boot sector as the program of PXE, which is loaded to the same address. It
// returns what the server has logged.
func serveBoot(t *testing.T, n *node.Node) (log func() string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	folder := t.TempDir()
	assert.NilError(t, os.WriteFile(filepath.Join(folder, "program"), guest.BootSector("booted from the network", guest.Halt)[:512], 0o644))
	if _, err := n.Output(ctx, "ip", "address", "add", "10.98.3.1/24", "dev", bootBridge); err != nil {
		t.Fatal(err)
	}
	logFile := filepath.Join(folder, "log")
	var output bytes.Buffer
	server := n.Command(ctx, "dnsmasq", "--conf-file=/dev/null", "--no-daemon", "--user=root", "--port=0",
		"--interface="+bootBridge, "--bind-interfaces", "--dhcp-range=10.98.3.10,10.98.3.10,1h", "--leasefile-ro",
		"--dhcp-boot=program", "--enable-tftp", "--tftp-root="+folder, "--log-facility="+logFile)
	server.Stdout, server.Stderr = &output, &output
	assert.NilError(t, server.Start())
	t.Cleanup(func() {
		cancel()
		_ = server.Wait() // it is killed
		if t.Failed() {
			t.Logf("the boot server: %s", &output)
		}
	})
	return func() string {
		text, err := os.ReadFile(logFile)
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
}
