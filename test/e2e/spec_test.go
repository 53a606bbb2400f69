package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/guest"
)

const sshKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0example e2e"

func TestThePodIsTheContract(t *testing.T) {
	t.Parallel()
	p := vmPod(t, annotated(map[string]string{
		"nodevirt.io/cloud-init-user-data":   "#!/bin/sh\necho user data ran\necho made by user data >/www/made\n",
		"nodevirt.io/cloud-init-meta-data":   "instance-id: i-e2e\nlocal-hostname: from-meta-data\n",
		"nodevirt.io/ssh-authorized-keys":    sshKey + "\n",
		"example.com/of-no-interest-to-a-vm": "{",
	}), func(c *runtimeapi.PodSandboxConfig) {
		c.DnsConfig = &runtimeapi.DNSConfig{
			Servers: []string{"10.96.0.10", "10.96.0.11"}, Searches: []string{"default.svc.cluster.local", "cluster.local"},
		}
	})
	gateway := strings.Fields(inNode(t, "nsenter", "--net="+p.netns(), "ip", "route", "show", "default"))[2]
	inNode(t, "nsenter", "--net="+p.netns(), "ip", "route", "add", "10.123.0.0/16", "via", gateway)
	mac := p.mac()
	c := p.vm(suite.tiny, func(c *runtimeapi.ContainerConfig) {
		c.Linux.Resources = &runtimeapi.LinuxContainerResources{
			MemoryLimitInBytes: 200 * mebibyte, CpuPeriod: 100_000, CpuQuota: 150_000,
		}
	}).start().up()
	c.saying("user data ran$")
	if got := c.page("/made"); got != "made by user data\n" {
		t.Errorf("user data made %q", got)
	}
	g := c.guest()
	if g.CPUs != 2 || g.Memory > 200*mebibyte || g.Memory < 150*mebibyte {
		t.Errorf("a limit of 1.5 CPUs and 200 MiB made %d CPUs and %d bytes", g.CPUs, g.Memory)
	}
	if g.Hostname != "from-meta-data" || g.InstanceID != "i-e2e" || !slices.Equal(g.AuthorizedKeys, []string{sshKey}) {
		t.Errorf("the seed made host %q, instance %q, keys %q", g.Hostname, g.InstanceID, g.AuthorizedKeys)
	}
	g.wantNetwork(t, p, mac)
	wantResolv := []string{"search default.svc.cluster.local cluster.local", "nameserver 10.96.0.10", "nameserver 10.96.0.11"}
	if !slices.Equal(g.Resolv, wantResolv) {
		t.Errorf("resolv.conf %q; want %q", g.Resolv, wantResolv)
	}
	for _, want := range []string{"default via " + gateway, "10.123.0.0/16 via " + gateway} {
		if !slices.ContainsFunc(g.Routes, func(r string) bool { return strings.HasPrefix(r, want) }) {
			t.Errorf("no route %q in %q", want, g.Routes)
		}
	}
	if !slices.Contains(g.Interfaces[0].DHCP, "hostname="+p.config.Hostname) {
		t.Errorf("DHCP says %q; want the host name %s", g.Interfaces[0].DHCP, p.config.Hostname)
	}
	if !slices.Contains(g.Ports, "org.qemu.guest_agent.0") {
		t.Errorf("virtio ports %q", g.Ports)
	}
	if len(g.Disks) != 2 || g.Disks[0].ReadOnly || !g.Disks[1].ReadOnly {
		t.Errorf("disks %+v", g.Disks)
	}
}

// mac is the address of the pod's interface.
func (p *pod) mac() string {
	p.t.Helper()
	link := inNode(p.t, "nsenter", "--net="+p.netns(), "ip", "-oneline", "link", "show", "eth0")
	return regexp.MustCompile(`link/ether (\S+)`).FindStringSubmatch(link)[1]
}

// TestMACOnThePodNetwork: a bridged guest may have the pod's own, and no other's.
func TestMACOnThePodNetwork(t *testing.T) {
	t.Parallel()
	p := vmPod(t, annotated(vmiNetwork(`{"name":"default","bridge":{},"macAddress":"02:00:00:e2:e0:01"}`, `{"name":"default","pod":{}}`)))
	c := p.vm(suite.tiny)
	_, err := suite.cri.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: c.id})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "spec.domain.devices.interfaces[0].macAddress") {
		t.Errorf("the start: %v", err)
	}
}

// wantNetwork checks that the guest has the pod's IP, MAC and MTU.
func (g guestInfo) wantNetwork(t *testing.T, p *pod, mac string) {
	t.Helper()
	if len(g.Interfaces) != 1 {
		t.Fatalf("interfaces %+v", g.Interfaces)
	}
	nic := g.Interfaces[0]
	if !strings.EqualFold(nic.MAC, mac) || nic.MTU != 1400 {
		t.Errorf("MAC %s, MTU %d; want the pod's %s and 1400", nic.MAC, nic.MTU, mac)
	}
	if !slices.Contains(nic.Addresses, p.ip()+"/24") {
		t.Errorf("addresses %q; want %s", nic.Addresses, p.ip())
	}
}

// secret makes a folder as a kubelet does for a volume named seed.
func secret(t *testing.T, key, content string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "volumes", "kubernetes.io~secret", "seed")
	assert.NilError(t, os.MkdirAll(filepath.Join(folder, "..data"), 0o755))
	assert.NilError(t, os.WriteFile(filepath.Join(folder, "..data", key), []byte(content), 0o600))
	assert.NilError(t, os.Symlink(filepath.Join("..data", key), filepath.Join(folder, key)))
	return folder
}

func TestAVMIDescribesTheMachine(t *testing.T) {
	t.Parallel()
	args := guest.Cmdline + " e2e.mark=1"
	vmi, err := json.Marshal(map[string]any{
		"hostname": "from-vmi",
		"domain": map[string]any{
			"cpu":     map[string]any{"sockets": 1, "cores": 2, "model": "Nehalem"},
			"memory":  map[string]any{"guest": "160Mi"},
			"machine": map[string]any{"type": "pc"},
			"firmware": map[string]any{
				"uuid": "6ba7b810-9dad-41d1-80b4-00c04fd430c8",
				"kernelBoot": map[string]any{
					"kernelArgs": args,
					"container":  map[string]any{"kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd"},
				},
			},
			"devices": map[string]any{
				"disks": []any{
					map[string]any{"name": "seed", "disk": map[string]any{"bus": "virtio"}},
					map[string]any{"name": "root", "disk": map[string]any{"bus": "virtio"}},
				},
				"interfaces": []any{map[string]any{"name": "default", "bridge": map[string]any{}, "acpiIndex": 101}},
				"rng":        map[string]any{},
			},
		},
		"networks": []any{map[string]any{"name": "default", "pod": map[string]any{}}},
		"volumes": []any{
			map[string]any{"name": "root", "containerDisk": map[string]any{"image": suite.kernel, "path": "/disk/disk.qcow2"}},
			map[string]any{"name": "seed", "cloudInitNoCloud": map[string]any{"secretRef": map[string]any{"name": "seed"}}},
		},
	})
	assert.NilError(t, err)
	p := vmPod(t, annotated(map[string]string{"nodevirt.io/vmi": string(vmi)}))
	mac := p.mac()
	c := p.vm(suite.kernel, func(c *runtimeapi.ContainerConfig) {
		c.Linux.Resources.MemoryLimitInBytes = 256 * mebibyte
		c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: "/volumes/seed", Readonly: true,
			HostPath: secret(t, "userdata", "#!/bin/sh\necho seeded by a Secret\n")})
	}).start().up()
	c.saying("seeded by a Secret$") // the shell's prompt may stand before it
	g := c.guest()
	if g.Cmdline != args {
		t.Errorf("command line %q; want %q", g.Cmdline, args)
	}
	if !strings.Contains(g.CPUModel, "Nehalem") || g.CPUs != 2 {
		t.Errorf("%d CPUs of model %q", g.CPUs, g.CPUModel)
	}
	c.post("/cgi-bin/program", shell)
	if bridge := c.runs("cat /sys/bus/pci/devices/0000:00:00.0/device\n"); strings.TrimSpace(bridge) != "0x1237" {
		t.Errorf("the host bridge is %q; want i440FX's", bridge)
	}
	if index := c.runs("cat /sys/class/net/eth0/device/../acpi_index\n"); strings.TrimSpace(index) != "101" {
		t.Errorf("the card's ACPI index is %q", index)
	}
	if g.Product != "None" || g.ProductUUID != "6ba7b810-9dad-41d1-80b4-00c04fd430c8" {
		t.Errorf("product %q, UUID %q", g.Product, g.ProductUUID)
	}
	if g.Memory > 160*mebibyte || g.Memory < 110*mebibyte {
		t.Errorf("160Mi made %d bytes", g.Memory)
	}
	if g.Hostname != "from-vmi" {
		t.Errorf("host name %q", g.Hostname)
	}
	g.wantNetwork(t, p, mac)
	if len(g.Disks) != 2 || !g.Disks[0].ReadOnly || g.Disks[1].ReadOnly {
		t.Errorf("disks %+v; want the seed first", g.Disks)
	}
}
