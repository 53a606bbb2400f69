//go:build slow

package e2e

import (
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
)

// TestDHCPOptions: a guest's dhclient gets the options of its interface, also one that it does not ask for.
func TestDHCPOptions(t *testing.T) {
	t.Parallel()
	disk, err := guest.TinyWithLogin(t.Context(), suite.GuestOptions(), guest.Fedora, true)
	assert.NilError(t, err)
	image, err := pushDisk(t.Context(), "fedora:1", disk, images.DiskOptions{})
	assert.NilError(t, err)
	assert.NilError(t, pull(t.Context(), image))
	vm := vmPod(t, annotated(vmiNetwork(`{"name":"default","masquerade":{},"dhcpOptions":{"bootFileName":"config",`+
		`"tftpServerName":"tftp.kubevirt.io","ntpServers":["127.0.0.1","127.0.0.2","0127.0.0.3"],`+
		`"privateOptions":[{"option":240,"value":"private.options.kubevirt.io"}]}}`, `{"name":"default","pod":{}}`))).
		vm(image, func(c *runtimeapi.ContainerConfig) { c.Linux.Resources.MemoryLimitInBytes = 256 * mebibyte }).start().up()
	vm.agentIs(agent.Present)
	r := vm.exec("bash", "-c", "dhclient -1 -r -d eth0 && dhclient -1 -sf /usr/bin/env "+
		"--request-options subnet-mask,routers,domain-name-servers,ntp-servers,interface-mtu,tftp-server-name,bootfile-name eth0")
	for _, want := range []string{
		"\nnew_tftp_server_name=tftp.kubevirt.io\n", "\nnew_bootfile_name=config\n",
		"\nnew_ntp_servers=127.0.0.1 127.0.0.2 127.0.0.3\n", "\nnew_unknown_240=private.options.kubevirt.io\n",
	} {
		if !strings.Contains(string(r.Stdout), want) {
			t.Errorf("dhclient, which ended with %d, says\n%s%s\nwithout %q", r.ExitCode, r.Stdout, r.Stderr, want)
		}
	}
}
