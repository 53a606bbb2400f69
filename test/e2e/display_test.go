package e2e

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
)

const displayed = `{"domain": {"devices": {"autoattachGraphicsDevice": true,
	"disks": [{"name": "d", "disk": {"bus": "virtio"}}], "interfaces": [{"name": "default", "bridge": {}}]}},
	"networks": [{"name": "default", "pod": {}}], "volumes": [{"name": "d", "containerDisk": {}}]}`

func TestDisplay(t *testing.T) {
	t.Parallel()
	p := vmPod(t, annotated(map[string]string{"nodevirt.io/vmi": displayed}))
	c := p.vm(suite.halt).start()
	_, local := p.forward("5900")
	// Two at once: RFC 6143, 7.1.1.
	for range 2 {
		conn := dialled(t, local["5900"])
		hello := make([]byte, 12)
		if _, err := io.ReadFull(conn, hello); string(hello) != "RFB 003.008\n" || err != nil {
			t.Fatalf("the display says %q, %v", hello, err)
		}
		_, err := conn.Write(hello)
		assert.NilError(t, err)
		security := make([]byte, 2) // one type: none
		if _, err := io.ReadFull(conn, security); string(security) != "\x01\x01" || err != nil {
			t.Errorf("its security types are %v, %v", security, err)
		}
	}
	// Only QEMU's user and root can open it, and nothing listens on the network.
	info := c.info()
	folder := filepath.Join(procOf(1), "root", filepath.Dir(info.VM.DisplaySocket))
	stat, err := os.Stat(folder)
	assert.NilError(t, err)
	if uid := int(stat.Sys().(*syscall.Stat_t).Uid); stat.Mode() != fs.ModeDir|0o700 || uid != info.VM.Domain.UID {
		t.Errorf("the display's folder is %v of user %d; want 0700 of %d", stat.Mode(), uid, info.VM.Domain.UID)
	}
	if out := inNode(t, "ss", "-Hltnp"); strings.Contains(out, "qemu") {
		t.Errorf("QEMU listens on the network:\n%s", out)
	}
	c.stop(0)
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("after the VM's end its display's folder is still there: %v", err)
	}

	// A VM that has not asked for a display has none.
	p = vmPod(t, named("plain"))
	c = p.vm(suite.halt).start()
	if socket := c.info().VM.DisplaySocket; socket != "" {
		t.Errorf("a plain VM's display is at %s", socket)
	}
	s, local := p.forward("5900")
	if n, err := dialled(t, local["5900"]).Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes came from the display of a plain VM", n)
	}
	s.sees("error forwarding port 5900")
}
