package vmspec

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// podOf is a request of the kubelet for a VM, with the fields that it sets in each.
func podOf() (*runtimeapi.PodSandboxConfig, *runtimeapi.ContainerConfig) {
	namespaces := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}
	return &runtimeapi.PodSandboxConfig{
			Hostname: "vm",
			Linux:    &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: namespaces}},
		}, &runtimeapi.ContainerConfig{
			Metadata:    &runtimeapi.ContainerMetadata{Name: "vm"},
			Annotations: map[string]string{terminationMessagePath: defaultMessagePath},
			Mounts:      []*runtimeapi.Mount{{ContainerPath: defaultMessagePath, HostPath: "/var/lib/kubelet/pods/u/containers/vm/12345678"}},
			Linux: &runtimeapi.LinuxContainerConfig{
				Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 128 << 20},
				SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
					NamespaceOptions: proto.Clone(namespaces).(*runtimeapi.NamespaceOption),
					Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined},
					Apparmor:         &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
				},
			},
		}
}

// TestPodFields: a field of the pod that would have no effect on the guest is refused by its name.
func TestPodFields(t *testing.T) {
	local := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "mine"}
	for want, set := range map[string]func(sandbox *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig){
		"": func(*runtimeapi.PodSandboxConfig, *runtimeapi.ContainerConfig) {},
		"command and args: a VM runs what its disk boots; remove them": func(_ *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) {
			c.Args = []string{"sleep"}
		},
		"workingDir: the node starts no program in a guest; remove it": func(_ *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) {
			c.WorkingDir = "/srv"
		},
		"lifecycle.stopSignal: a guest gets an ACPI shutdown request, and no signal": func(_ *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) {
			c.StopSignal = runtimeapi.Signal_SIGNAL_SIGUSR1
		},
		"terminationMessagePath: a guest writes no files of its node; remove it": func(_ *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) {
			c.Annotations[terminationMessagePath], c.Mounts[0].ContainerPath = "/run/my.log", "/run/my.log"
		},
		"securityContext.privileged: a guest gets no rights on its node": func(_ *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) {
			c.Linux.SecurityContext.Privileged = true
		},
		"securityContext.seccompProfile: QEMU has the node's own; use RuntimeDefault": func(_ *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) {
			c.Linux.SecurityContext.Seccomp = local
		},
		"securityContext.appArmorProfile: QEMU has the node's own; use RuntimeDefault": func(_ *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) {
			c.Linux.SecurityContext.Apparmor = local
		},
		"hostPID: a guest does not see processes of its node; remove it": func(s *runtimeapi.PodSandboxConfig, _ *runtimeapi.ContainerConfig) {
			s.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_NODE
		},
		"hostIPC: a guest does not share memory with its node; remove it": func(_ *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) {
			c.Linux.SecurityContext.NamespaceOptions.Ipc = runtimeapi.NamespaceMode_NODE
		},
		"target container: a VM shares no processes": func(_ *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) {
			c.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_TARGET
		},
	} {
		sandbox, c := podOf()
		set(sandbox, c)
		_, err := FromCRI(sandbox, c)
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), "container vm: "+want)) {
			t.Errorf("%v\nwant %s", err, want)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("further problems: %v", err)
		}
	}
}

// TestReadOnlyRoot: the guest can't write the disk of an image whose files a container could not write.
func TestReadOnlyRoot(t *testing.T) {
	sandbox, c := podOf()
	c.Linux.SecurityContext.ReadonlyRootfs = true
	spec, err := FromCRI(sandbox, c)
	if err != nil || !spec.Disks()[0].ReadOnly {
		t.Errorf("%+v, %v", spec.Disks(), err)
	}
	sandbox.Annotations = map[string]string{AnnotationVMI: `{"domain": {"devices": {"disks": [{"name": "root", "disk": {}}]}},
		"volumes": [{"name": "root", "containerDisk": {"image": ""}}]}`}
	if _, err := FromCRI(sandbox, c); err == nil || !strings.Contains(err.Error(), "readOnlyRootFilesystem: QEMU has no read-only disk on bus sata") {
		t.Errorf("on SATA: %v", err)
	}
	sandbox.Annotations[AnnotationVMI] = strings.Replace(sandbox.Annotations[AnnotationVMI], `"disk": {}`, `"cdrom": {"bus": "sata"}`, 1)
	if _, err := FromCRI(sandbox, c); err != nil {
		t.Errorf("a CD: %v", err)
	}
}
