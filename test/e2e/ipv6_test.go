package e2e

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/test/wait"
)

// A guest gets its pod's IPv6 address, or a separate one behind it, and gets it again after a reboot
// in which it has made itself a new identifier, as a guest without a disk does.
func TestIPv6(t *testing.T) {
	for binding, own := range map[string]string{"bridge": "", "masquerade": "fd10:0:2::2"} {
		t.Run(binding, func(t *testing.T) {
			t.Parallel()
			p := vmPod(t, annotated(vmiNetwork(`{"name":"default","`+binding+`":{}}`, `{"name":"default","pod":{}}`)))
			vm := p.vm(suite.tiny).start()
			pod := podAddress(1)(p).String()
			want := own
			if want == "" {
				want = pod
			}
			vm.up()
			for boot, duid := range []string{"\x00\x04first boot......", "\x00\x04second boot....."} {
				if boot > 0 {
					vm.reboots()
				}
				vm.installs("client6")
				if got := strings.TrimSpace(vm.runs(duid)); got != want {
					t.Fatalf("under identifier %q the guest gets %q, want %s", duid, got, want)
				}
				wait.Until(t, "the guest answers at its IPv6 address", func() bool { // once it knows that the address is unused
					page, err := suite.Fetch(t.Context(), http.MethodGet, "http://"+net.JoinHostPort(pod, "80")+"/", "")
					return err == nil && strings.HasPrefix(page, "ip=")
				})
			}
		})
	}
}
