package criwalk

import (
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestUserNamespace has a VM in a pod with a separate user namespace, which the handler says that it can
// support: QEMU is in none of the pod's namespaces, but its card is.
func TestUserNamespace(t *testing.T) {
	t.Parallel()
	p := newPod(t, "userns", "vm")
	options := &runtimeapi.NamespaceOption{UsernsOptions: &runtimeapi.UserNamespace{
		Mode: runtimeapi.NamespaceMode_POD,
		Uids: []*runtimeapi.IDMapping{{HostId: 1_000_000, Length: 65_536}},
		Gids: []*runtimeapi.IDMapping{{HostId: 1_000_000, Length: 65_536}},
	}}
	p.config.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: options}
	p.run()
	machine, process := newSubject(p, "compute", suite.machine), newSubject(p, "sidecar", suite.process)
	for _, s := range []*subject{machine, process} {
		s.config.Linux.SecurityContext.NamespaceOptions = options
		s.config.Mounts = nil // of folders that the pod's root can't see
		assert.NilError(t, s.create())
		assert.NilError(t, s.start())
		assert.NilError(t, s.stop())
		assert.NilError(t, s.removeIt())
	}
}
