//go:build slow

package e2e

import (
	"bufio"
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestUSBRedirection has usbredirect pass a USB stick to a guest, which reads and writes it, and loses it when
// usbredirect's connection ends. The kernel of the tests' machine has no USB: usbredirect runs in another guest, whose
// stick QEMU emulates.
func TestUSBRedirection(t *testing.T) {
	t.Parallel()
	from, err := guest.TinyWithUSBRedirect(t.Context(), suite.GuestOptions())
	assert.NilError(t, err)
	to, err := guest.TinyWithUSB(t.Context(), suite.GuestOptions())
	assert.NilError(t, err)
	raw, digest := dataDisk(t, "stick.img", "stick ", 2*mebibyte)
	client := vmPod(t, named("client"), annotated(map[string]string{"nodevirt.io/vmi": `{
		"domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "stick", "disk": {"bus": "usb"}}]}},
		"volumes": [{"name": "root", "containerDisk": {"image": "r"}}, {"name": "stick", "containerDisk": {"image": "s"}}]
	}`})).vm(pushed(t, "tiny-usbredirect:1", from, images.DiskOptions{}), mounts("/v/stick", pushed(t, "stick:1", raw, images.DiskOptions{})),
		func(c *runtimeapi.ContainerConfig) { c.Linux.Resources.MemoryLimitInBytes = 192 * mebibyte }).start().up()
	vm := vmPod(t, named("vm"), annotated(map[string]string{"nodevirt.io/vmi": `{
		"domain": {"devices": {"clientPassthrough": {}, "disks": [{"name": "root", "disk": {"bus": "virtio"}}]}},
		"volumes": [{"name": "root", "containerDisk": {"image": "r"}}]
	}`})).vm(pushed(t, "tiny-usb:3", to, images.DiskOptions{})).start().up()
	wait.Until(t, "the client has the stick", func() bool { return stick(client) != "" })
	assert.Equal(t, stick(vm), "")

	shell := client.attach("-i")
	shell.types("usbredirect --device 46f4:0001 --as 0.0.0.0:4000 >/tmp/log 2>&1 &\r")
	var conn net.Conn
	wait.Until(t, "usbredirect listens", func() bool {
		conn, err = suite.Dial(t.Context(), "tcp", net.JoinHostPort(client.ip(), "4000"))
		return err == nil
	})
	end := redirect(t, conn, vm)
	wait.Until(t, "the guest has the stick", func() bool { return stick(vm) != "" })
	if got := vm.disk(stick(vm)); got != digest {
		t.Errorf("the stick has the digest %s, want %s", got, digest)
	}
	written := vm.write(stick(vm), "the guest's own")
	end()
	wait.Until(t, "the guest has no stick any more", func() bool { return stick(vm) == "" })
	wait.Until(t, "the client has the stick again", func() bool { return stick(client) != "" })
	if got := client.disk(stick(client)); got != written || got == digest {
		t.Errorf("the client's stick has the digest %s, want %s", got, written)
	}
}

// stick returns the name of the guest's disk on USB; "" for none.
func stick(c *container) string {
	all := c.guest().Disks
	if i := slices.IndexFunc(all, func(d guestDisk) bool { return strings.HasPrefix(d.Name, "sd") && d.Size == 2*mebibyte }); i >= 0 {
		return all[i].Name
	}
	return ""
}

// redirect joins usbredirect and a slot of the VM, until end is called.
func redirect(t *testing.T, conn net.Conn, vm *container) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	slot := suite.Command(ctx, "crictl", "exec", "--interactive", vm.id, "nodevirt.io/usb")
	in, err := slot.StdinPipe()
	assert.NilError(t, err)
	out, err := slot.StdoutPipe()
	assert.NilError(t, err)
	assert.NilError(t, slot.Start())
	reader := bufio.NewReader(out)
	first, err := reader.ReadString('\n')
	assert.NilError(t, err)
	assert.Equal(t, first, "connected\n")
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(conn, reader) // until the slot's end
	}()
	go func() {
		_, _ = io.Copy(in, conn) // until the connection's end
		_ = in.Close()
	}()
	return func() {
		_ = conn.Close()
		cancel()
		<-copied
		_ = slot.Wait() // the connection is gone
	}
}
