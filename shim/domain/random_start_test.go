package domain

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"gotest.tools/v3/assert"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nodevirt/nodevirt/controller/manifest"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const (
	// startedStep is the distance of the random specs that are started: all of them take minutes.
	startedStep = 3
	// leastStarted is how many of them must start, and mostProcessors how many vCPUs one of them may have.
	leastStarted   = 50
	mostProcessors = 16
)

// TestRandomSpecsStart defines some of the random specs that admission takes with libvirtd and QEMU, and starts each one for
// which the test can make what a node has. A start fails only by the path of a field. A VM that requires a CPU or board
// which the node does not offer is not scheduled there.
func TestRandomSpecsStart(t *testing.T) {
	startLibvirtd(t)
	d := startDriver(t)
	offered, err := d.Host.Capabilities(t.Context(), TCG, plainDomain().Emulator, []string{vmspec.ARM64})
	assert.NilError(t, err)
	started, kept := 0, map[string]int{}
	for n := uint64(0); n < randomSpecs; n += startedStep {
		g := generator{rand.New(rand.NewPCG(randomSeed, n))}
		tree := g.spec()
		spec, _ := manifest.CheckVMI(field.NewPath("spec"), decodedSpec(t, tree))
		if spec == nil {
			continue
		}
		desc, err := describes(spec)
		if err != nil || desc == nil { // TestRandomSpecs reports the error
			continue
		}
		why := missing(desc.Spec, offered)
		if why == "" {
			started++
		} else {
			kept[why]++
		}
		t.Run(fmt.Sprint(n), func(t *testing.T) { startRandom(t, d, *desc, why == "", tree) })
	}
	t.Logf("%d specs start; others only are defined, since the test lacks %v", started, kept)
	if started < leastStarted {
		t.Errorf("only %d specs start, want %d", started, leastStarted)
	}
}

// missing says what of a VM the test does not have; empty for one that it can start.
func missing(s vmspec.Spec, offered Capabilities) string {
	model := s.CPU.Model
	switch {
	case s.CPU.Dedicated:
		return "dedicated CPUs"
	case s.HugePage > 0:
		return "huge pages"
	case s.CPU.Sockets*s.CPU.Cores*s.CPU.Threads > mostProcessors:
		return "time for many vCPUs"
	case len(s.HostDevices) > 0:
		return "host devices"
	case len(s.Filesystems) > 0:
		return "virtiofsd"
	case s.TPM:
		return "swtpm"
	case s.VSOCK:
		return "vhost-vsock"
	case slices.ContainsFunc(s.Disks, func(d vmspec.Disk) bool { return d.Block }):
		return "block devices"
	case !slices.Contains(offered.Machines, s.Machine):
		return "machine " + s.Machine
	case model != "" && model != "host-model" && model != "host-passthrough" && !slices.Contains(offered.Models, model):
		return "CPU model " + model
	}
	for _, f := range s.CPU.Features {
		if f.Policy == "require" && !slices.Contains(offered.Features, f.Name) {
			return "CPU feature " + f.Name
		}
	}
	return ""
}

// startRandom defines a domain, and starts it if the test has what it needs.
func startRandom(t *testing.T, d *Driver, desc Description, start bool, tree any) {
	t.Helper()
	files := map[string][]*os.File{}
	if start {
		files = furnish(t, &desc)
	}
	text, err := XML(desc)
	assert.NilError(t, err)
	if err := d.Lifecycle.Define(t.Context(), text); err != nil {
		t.Fatalf("libvirt refuses what admission takes: %v\n%v\n%s", err, tree, text)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 3*time.Minute)
		defer cancel()
		if err := errors.Join(d.Lifecycle.Destroy(ctx, desc.UUID), d.Lifecycle.Undefine(ctx, desc.UUID)); err != nil {
			t.Error(err)
		}
	}()
	if !start {
		return
	}
	if _, err := d.Lifecycle.Start(t.Context(), desc.UUID, files); err != nil && !refusal(err) {
		t.Fatalf("it does not start: %v\n%v\n%s", err, tree, text)
	}
}

// TestUnknownFeature: the error of a start names the field of a CPU feature that libvirt does not know.
func TestUnknownFeature(t *testing.T) {
	startLibvirtd(t)
	d := startDriver(t)
	g := newGuest(t)
	g.Spec.CPU.Model, g.Spec.CPU.Features = "Nehalem", []vmspec.CPUFeature{{Name: "avx-3", Policy: "optional"}}
	define(t, d, g)
	_, err := d.Lifecycle.Start(t.Context(), g.UUID, g.files)
	if !refusal(err) || !strings.Contains(err.Error(), `spec.domain.cpu.features: this node's libvirt does not know the CPU feature "avx-3"`) {
		t.Errorf("start: %v", err)
	}
}

// furnish makes the files, sockets' folders and taps of a domain, as a node does, and returns the files that libvirt gets
// open.
func furnish(t *testing.T, desc *Description) map[string][]*os.File {
	t.Helper()
	dir, err := os.MkdirTemp("/run", "vm") // private here, and short enough for a socket
	assert.NilError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	assert.NilError(t, os.Chmod(dir, 0o711))
	own := func(name, content string, size int64) string {
		t.Helper()
		path := filepath.Join(dir, name)
		assert.NilError(t, os.WriteFile(path, []byte(content), 0o600))
		assert.NilError(t, os.Truncate(path, max(size, int64(len(content)))))
		assert.NilError(t, os.Chown(path, int(desc.UID), int(desc.GID)))
		return path
	}
	files := map[string][]*os.File{}
	for i := range desc.Disks {
		for j := range desc.Disks[i].Layers {
			layer := &desc.Disks[i].Layers[j]
			group := fmt.Sprintf("%s-%d", desc.Spec.Disks[i].Name, j)
			layer.Path, layer.FDGroup = own(group, "", 1<<20), group
			flag := os.O_RDWR
			if layer.ReadOnly {
				flag = os.O_RDONLY
			}
			files[group] = []*os.File{openFile(t, layer.Path, flag)}
		}
	}
	for i, card := range desc.Spec.Interfaces {
		desc.NICs[i].Tap = fmt.Sprint("rnd", i)
		tap := &netlink.Tuntap{
			LinkAttrs: netlink.LinkAttrs{Name: desc.NICs[i].Tap}, Mode: netlink.TUNTAP_MODE_TAP,
			Flags: netlink.TUNTAP_VNET_HDR | netlink.TUNTAP_NO_PI,
		}
		if card.Queues > 1 {
			tap.Flags |= netlink.TUNTAP_MULTI_QUEUE
		}
		assert.NilError(t, netlink.LinkAdd(tap))
		t.Cleanup(func() { _ = netlink.LinkDel(tap) })
	}
	display := filepath.Join(dir, "vnc")
	assert.NilError(t, os.Mkdir(display, 0o700))
	assert.NilError(t, os.Chown(display, int(desc.UID), int(desc.GID)))
	desc.DisplaySocket = filepath.Join(display, "vnc.sock")
	for name, at := range map[string]*string{
		"console.sock": &desc.ConsoleSocket, "console.log": &desc.ConsoleLog, "agent.sock": &desc.AgentSocket, "metrics.sock": &desc.MetricsSocket,
	} {
		*at = filepath.Join(dir, name)
	}
	if desc.Spec.USBRedirection {
		for i := range 4 {
			desc.USBSockets = append(desc.USBSockets, filepath.Join(dir, fmt.Sprint("usb", i)))
		}
	}
	if desc.Kernel != "" {
		desc.Kernel = own("kernel", kernelHeader(), 64<<10)
		desc.Initrd = own("initrd", "", 4096)
	}
	if desc.UEFI != nil {
		template, err := os.ReadFile(desc.UEFI.Variables)
		assert.NilError(t, err)
		desc.UEFIVariables = own("uefi-variables", string(template), 0)
	}
	if desc.Ignition != "" {
		desc.Ignition = own("ignition", "{}", 0)
	}
	for i, table := range desc.ACPITables {
		desc.ACPITables[i].Path = own(table.Signature, table.Signature+"\x25\x00\x00\x00\x01"+strings.Repeat(".", 28), 0)
	}
	return files
}

// kernelHeader begins a kernel as far as QEMU reads it.
func kernelHeader() string {
	header := make([]byte, 0x230)
	copy(header[0x202:], "HdrS\x03\x02")
	copy(header[0x22c:], "\xff\xff\xff\x7f") // the highest address of the initial RAM disk
	return string(header)
}
