package vmtest_test

import (
	"testing"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/tpm"
	"github.com/nodevirt/nodevirt/shim/virtiofs"
	"github.com/nodevirt/nodevirt/shim/vm/lifecycle"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// The fakes are what package lifecycle needs.
var (
	_ lifecycle.DiskMaker    = (*vmtest.Disks)(nil)
	_ lifecycle.DiskAttacher = (*vmtest.Disks)(nil)
	_ lifecycle.DiskKeeper   = (*vmtest.Disks)(nil)
	_ lifecycle.Images       = (*vmtest.Images)(nil)
	_ lifecycle.ImageStore   = (*vmtest.Images)(nil)
	_ lifecycle.Expanded     = (*vmtest.Images)(nil)
	_ lifecycle.Agents       = (*vmtest.Agents)(nil)
	_ lifecycle.Conditions   = (*vmtest.Conditions)(nil)
	_ lifecycle.Sandboxes    = (*vmtest.Sandboxes)(nil)
	_ lifecycle.Publisher    = (*vmtest.Publications)(nil)
)

func sample(t *testing.T) vmtest.Sample {
	t.Helper()
	m := domain.Description{
		Name: "default_vm_1", UUID: "5d307ca9-b3ef-428c-8861-06e72d69f223", ContainerID: "c", PodName: "pod", Accelerator: domain.TCG,
		Spec: vmspec.Spec{CPU: vmspec.CPU{Sockets: 1, Cores: 1, Threads: 1}, Memory: 64 << 20, Machine: "q35", Balloon: true},
	}
	text, err := domain.XML(m)
	if err != nil {
		t.Fatal(err)
	}
	return vmtest.Sample{UUID: m.UUID, Name: m.Name, XML: text, RAM: m.Spec.Memory}
}

func TestLibvirt(t *testing.T) {
	fake := vmtest.NewLibvirt(&vmtest.Script{})
	d := vmtest.Libvirtd{
		Connection: fake.Connection, Domains: fake.Lifecycle, Observer: fake.Observer, Processes: fake.Processes, Memory: fake.Balloon,
	}
	vmtest.TestDomains(t, d, sample(t))
	vmtest.TestMemory(t, d, sample(t))
	vmtest.TestEvents(t, d, sample(t))
	if left := fake.Left(); len(left) > 0 {
		t.Error(left)
	}
}

func TestNetwork(t *testing.T) {
	n := vmtest.NewNetwork(&vmtest.Script{})
	vmtest.TestNetwork(t, n, n, "/run/netns/pod")
	if left := n.Left(); len(left) > 0 {
		t.Error(left)
	}
}

func TestFilesystems(t *testing.T) {
	all := vmtest.NewFilesystems(&vmtest.Script{})
	vmtest.TestFilesystems(t, all, virtiofs.Owner{ID: "c", Client: 2}, []virtiofs.Folder{{Path: "/a"}, {Path: "/b", ReadOnly: true}})
	if left := all.Left(); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

func TestTPMs(t *testing.T) {
	all := vmtest.NewTPMs(&vmtest.Script{})
	vmtest.TestTPMs(t, all, tpm.Owner{ID: "c", UID: 1, Client: 2})
	if left := all.Left(); len(left) > 0 {
		t.Error(left)
	}
}

func TestHooks(t *testing.T) {
	r := record.Container{ID: "with"}
	r.Spec.Hooks = &vmspec.Hooks{Folder: "/hooks", Sidecars: 1}
	vmtest.TestHooks(t, vmtest.NewHooks(&vmtest.Script{}), r)
}

func TestGroups(t *testing.T) {
	g := vmtest.NewGroups(&vmtest.Script{})
	vmtest.TestGroups(t, g, "/pod", 7, func() {})
	if left := g.Left(); len(left) > 0 {
		t.Error(left)
	}
}

func TestConsoles(t *testing.T) { vmtest.TestConsoles(t, vmtest.NewConsoles(&vmtest.Script{})) }

func TestRecords(t *testing.T) {
	s := vmtest.NewStore(&vmtest.Script{}, t.TempDir())
	vmtest.TestRecords(t, s, s)
}
