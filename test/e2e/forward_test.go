package e2e

import (
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/wait"
)

var forwarding = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+) -> (\d+)`)

// forward runs crictl port-forward, and returns where it listens in the node for each port.
func (p *pod) forward(ports ...string) (s *session, local map[string]string) {
	p.t.Helper()
	args := []string{"port-forward", p.id}
	for _, port := range ports {
		args = append(args, ":"+port)
	}
	s = newSession(p.t, "crictl", args...)
	local = map[string]string{}
	for _, port := range ports {
		s.sees(" -> " + port)
	}
	for _, m := range forwarding.FindAllStringSubmatch(s.seen(), -1) {
		local[m[2]] = m[1]
	}
	return s, local
}

// dialled connects in the node.
func dialled(t *testing.T, address string) net.Conn {
	t.Helper()
	conn, err := suite.Dial(t.Context(), "tcp", address)
	assert.NilError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	assert.NilError(t, conn.SetDeadline(time.Now().Add(wait.Patience)))
	return conn
}

func TestPortForward(t *testing.T) {
	t.Parallel()
	for name, change := range map[string][]func(*runtimeapi.PodSandboxConfig){
		"bridge": nil,
		"masquerade": {annotated(map[string]string{"nodevirt.io/vmi": `{"domain": {"devices": {
			"disks": [{"name": "d", "disk": {"bus": "virtio"}}],
			"interfaces": [{"name": "default", "masquerade": {}, "ports": [{"port": 22}]}]}},
			"networks": [{"name": "default", "pod": {}}],
			"volumes": [{"name": "d", "containerDisk": {}}]}`})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := vmPod(t, change...)
			c := p.vm(suite.tiny).start()
			p.sidecar("sh", "-c", "mkdir /tmp/www; echo beside >/tmp/www/index.html; exec httpd -f -p 127.0.0.1:8081 -h /tmp/www").start()
			c.up()
			s, local := p.forward("80", "7", "8081", "9")

			page, err := suite.Fetch(t.Context(), "GET", "http://"+local["80"]+"/", "")
			assert.NilError(t, err)
			if !strings.Contains(page, "host="+p.config.Hostname) {
				t.Errorf("the guest's page: %q", page)
			}
			sidecar := func() {
				t.Helper()
				if page, err := suite.Fetch(t.Context(), "GET", "http://"+local["8081"]+"/", ""); page != "beside\n" || err != nil {
					t.Errorf("the sidecar's page: %q, %v", page, err)
				}
			}
			sidecar()
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					again, err := suite.Fetch(t.Context(), "GET", "http://"+local["80"]+"/", "")
					if again != page || err != nil {
						t.Errorf("one of many asked for a page: %q, %v", again, err)
					}
				})
			}
			all.Wait()
			// The guest's echo server ends when its client has said all.
			for range 3 {
				conn := dialled(t, local["7"])
				text := strings.Repeat("to the guest and back ", 2000)
				_, err := io.WriteString(conn, text)
				assert.NilError(t, err)
				assert.NilError(t, conn.(interface{ CloseWrite() error }).CloseWrite())
				if back, err := io.ReadAll(conn); string(back) != text || err != nil {
					t.Errorf("%d bytes of %d came back, %v", len(back), len(text), err)
				}
			}
			if n, err := dialled(t, local["9"]).Read(make([]byte, 1)); err == nil {
				t.Errorf("%d bytes came from a port without a listener", n)
			}
			s.sees("error forwarding port 9 to pod " + p.id)
			s.sees("connection refused")

			// Without the VM the pod is like any other.
			s.leave()
			_ = s.ends()
			c.stop(0)
			_, local = p.forward("8081")
			sidecar()
		})
	}
}
