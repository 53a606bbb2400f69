//go:build cluster

package cluster

import (
	"context"
	"encoding/binary"
	"fmt"
	"testing"

	"gotest.tools/v3/assert"
)

// instance runs an instance with a display and a shell on its console until the test ends, and waits
// until it answers.
func instance(t *testing.T, name string) {
	t.Helper()
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if t.Failed() {
			about, _ := suite.Kubectl(ctx, "describe", "vmi", name)
			t.Log(about)
		}
		if _, err := suite.Kubectl(ctx, "delete", "vmi", name, "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	})
	assert.NilError(t, suite.Apply(t.Context(), fmt.Sprintf(`apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: %s}
spec:
  domain:
    memory: {guest: 128Mi}
    devices:
      autoattachGraphicsDevice: true
      disks: [{name: boot, disk: {bus: virtio}}]
      interfaces: [{name: default, masquerade: {}}]
  networks: [{name: default, pod: {}}]
  volumes: [{name: boot, containerDisk: {image: "%s"}}]
`, name, suite.tiny)))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+name, "jsonpath={.status.phase}=Running"))
	answer(t, kubectl(t, "get", "vmi", name, "-o", "jsonpath={.status.interfaces[0].ipAddress}"))
}

// Two viewers of one display, neither of whom asks to be the only one.
func TestTwoViewersOfADisplay(t *testing.T) {
	t.Parallel()
	const name = "watched"
	instance(t, name)
	viewers := []*socket{connect(t, name+"/vnc"), connect(t, name+"/vnc")}
	for _, v := range viewers {
		v.handshake()
	}
	for _, v := range viewers { // when both are there
		v.picture()
	}
	assert.NilError(t, viewers[0].Close())
	viewers[1].picture()
}

// handshake is RFC 6143's, 7.1 to 7.3, without authentication, for a display that is shared.
func (s *socket) handshake() {
	s.t.Helper()
	const version = "RFB 003.008\n"
	if got := s.takes(len(version)); string(got) != version {
		s.t.Fatalf("a display says %q", got)
	}
	s.send(version)
	s.takes(2)     // the kinds of security that there are
	s.send("\x01") // none
	s.takes(4)
	s.send("\x01") // shared
	about := s.takes(24)
	s.takes(int(binary.BigEndian.Uint32(about[20:]))) // the display's name
}

// picture asks for some pixels, which come as they are (7.5.3, 7.6.1 and 7.7.1).
func (s *socket) picture() {
	s.t.Helper()
	s.send(string([]byte{3, 0, 0, 0, 0, 0, 0, 8, 0, 8}))
	update := s.takes(4)
	if update[0] != 0 || binary.BigEndian.Uint16(update[2:]) == 0 {
		s.t.Fatalf("a display answers %x", update)
	}
	for range binary.BigEndian.Uint16(update[2:]) {
		part := s.takes(12)
		const bytesEach = 4
		s.takes(int(binary.BigEndian.Uint16(part[4:])) * int(binary.BigEndian.Uint16(part[6:])) * bytesEach)
	}
}
