package node_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/node"
)

// domain is a machine as the shim makes them, as far as qemu.conf has to do with it.
const domain = `<domain type='qemu'>
  <name>machine</name><memory unit='MiB'>128</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type>
    <kernel>%[1]s/vmlinuz</kernel><initrd>%[1]s/initrd</initrd><cmdline>%[2]s</cmdline></os>
  <features><acpi/></features>
  <devices><serial type='file'><source path='%[1]s/console'/></serial></devices>
  <seclabel type='static' model='dac' relabel='no'><label>+64001:+64001</label></seclabel>
</domain>`

func testGuest(t *testing.T, n *node.Node) {
	dir := machineDir(t, n)
	xml := filepath.Join(dir, "domain.xml")
	write(t, xml, fmt.Appendf(nil, domain, dir, guest.Cmdline))
	for _, args := range [][]string{{"create", "--paused", xml}, {"resume", "machine"}} {
		if _, err := n.Output(t.Context(), "virsh", args...); err != nil {
			t.Fatal(err)
		}
	}

	out, err := n.Output(t.Context(), "ps", "-C", "qemu-system-x86_64", "-o", "uid=", "-o", "ppid=")
	assert.NilError(t, err)
	if got := strings.Fields(out); len(got) != 2 || got[0] != "64001" || got[1] != "1" {
		t.Errorf("QEMU's uid and parent: %q; want 64001 and the node's first process", out)
	}
	awaitConsole(t, filepath.Join(dir, "console"), "nodevirt guest: up")

	if _, err := n.Output(t.Context(), "virsh", "destroy", "machine"); err != nil {
		t.Fatal(err)
	}
	for _, process := range census(t, n)["process"] {
		if strings.Contains(process, "qemu") {
			t.Errorf("after destroy there is process %s", process)
		}
	}
}

// machineDir holds a guest's kernel where QEMU's uid may read it, and may write its console.
func machineDir(t *testing.T, n *node.Node) string {
	t.Helper()
	kernel, err := guest.TinyKernel(t.Context(), n.GuestOptions())
	assert.NilError(t, err)
	dir := filepath.Join(n.Dir(), "machine")
	assert.NilError(t, os.Mkdir(dir, 0o755))
	for name, source := range map[string]string{"vmlinuz": kernel.Image, "initrd": kernel.Initrd} {
		data, err := os.ReadFile(source)
		assert.NilError(t, err)
		write(t, filepath.Join(dir, name), data)
	}
	console := filepath.Join(dir, "console")
	write(t, console, nil)
	assert.NilError(t, os.Chown(console, 64001, 64001))
	return dir
}

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	assert.NilError(t, os.WriteFile(path, data, 0o644))
}

// awaitConsole reads a console's file until it holds want. That takes seconds under emulation; two
// minutes are for a guest that hangs.
func awaitConsole(t *testing.T, path, want string) {
	t.Helper()
	f, err := os.Open(path)
	assert.NilError(t, err)
	defer f.Close()
	var text []byte
	for deadline := time.Now().Add(2 * time.Minute); !strings.Contains(string(text), want); {
		if time.Now().After(deadline) {
			t.Fatalf("the console does not say %q:\n%s", want, text)
		}
		more, err := io.ReadAll(f)
		assert.NilError(t, err)
		text = append(text, more...)
		time.Sleep(50 * time.Millisecond)
	}
}
