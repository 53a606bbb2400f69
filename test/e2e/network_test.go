package e2e

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/test/wait"
)

// vmiNetwork is a VMI annotation with one disk and such interfaces and networks.
func vmiNetwork(interfaces, networks string) map[string]string {
	return map[string]string{"nodevirt.io/vmi": `{"domain":{"devices":{"disks":[{"name":"root","disk":{"bus":"virtio"}}],` +
		`"interfaces":[` + interfaces + `]}},"networks":[` + networks + `],` +
		`"volumes":[{"name":"root","containerDisk":{"image":""}}]}`}
}

func TestMasquerade(t *testing.T) {
	t.Parallel()
	p := vmPod(t, annotated(vmiNetwork(
		`{"name":"default","masquerade":{},"ports":[{"name":"http","port":80}]}`, `{"name":"default","pod":{}}`)))
	vm := p.vm(suite.tiny).start()
	sidecar := p.sidecar("sh", "-c", "mkdir /tmp/www; echo sidecar >/tmp/www/index.html; exec httpd -f -p 81 -h /tmp/www").start()
	vm.up()
	// The pod's address is both's: the guest has the port that is listed.
	if got := vm.page("/"); !strings.HasPrefix(got, "ip=10.0.2.2") {
		t.Errorf("port 80 of the pod says %q", got)
	}
	beside := "http://" + p.ip() + ":81/"
	if got, err := suite.Fetch(t.Context(), http.MethodGet, beside, ""); err != nil || got != "sidecar\n" {
		t.Errorf("port 81 of the pod says %q, %v", got, err)
	}
	for _, target := range []string{"http://10.0.2.2/", "http://" + p.ip() + "/"} {
		if got := crictl(t, "exec", sidecar.id, "wget", "-q", "-O", "-", target); !strings.HasPrefix(got, "ip=10.0.2.2") {
			t.Errorf("%s says %q to the sidecar", target, got)
		}
	}
	// It reaches out as its pod, and not what sidecars offer.
	other := runPod(t, "", named("other"))
	other.sidecar("sh", "-c", "mkdir /tmp/www; echo other >/tmp/www/index.html; exec httpd -f -p 80 -h /tmp/www").start()
	wait.Success(t, "another pod to listen", func(ctx context.Context) error {
		_, err := suite.Fetch(ctx, http.MethodGet, "http://"+other.ip()+"/", "")
		return err
	})
	if got := vm.page("/cgi-bin/fetch?http://" + other.ip() + "/"); got != "other\n" {
		t.Errorf("another pod says %q to the guest", got)
	}
	if got, err := suite.Fetch(t.Context(), http.MethodGet, vm.url("/cgi-bin/fetch?"+beside), ""); err == nil {
		t.Errorf("the sidecar says %q to the guest", got)
	}
	g := vm.guest()
	if nic := g.Interfaces[0]; nic.MTU != 1400 || nic.MAC != "0a:58:0a:00:02:02" {
		t.Errorf("the guest's card is %+v", nic)
	}
}
