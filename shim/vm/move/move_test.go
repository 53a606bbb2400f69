package move_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/cgroup"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate/handover"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/move"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const (
	uid   = "0d2c5a5e-0000-4000-8000-000000000001"
	other = "0d2c5a5e-0000-4000-8000-000000000002"
	vmID  = "7c3f2c9e-0000-4000-8000-000000000003"
)

// domains is the fake of libvirtd, with what only migrations call.
type domains struct {
	*vmtest.Lifecycle
	*vmtest.Observer

	rig *rig
}

func (domains) Associate(context.Context, string, map[string][]*os.File) (func(), error) {
	return func() {}, nil
}

func (d domains) MigratableXML(context.Context, string) (string, error) {
	if d.rig.looks != nil {
		d.rig.looks()
	}
	return `<domain><os><type machine="pc-q35-7.2">hvm</type></os><cpu mode="maximum"/><devices/></domain>`, nil
}

func (domains) PrepareMirrors(context.Context, string, []string) error { return nil }

func (d domains) MigratesLive(context.Context, string) (bool, error) { return d.rig.live, nil }

func (d domains) Pause(_ context.Context, uuid string) error {
	d.rig.libvirt.Pause(uuid, domain.ReasonMigrated)
	return d.rig.note("pause")
}

func (domains) DropCopies(context.Context, string) error { return nil }

func (domains) LimitDowntime(context.Context, string, time.Duration) error { return nil }

func (d domains) Job(context.Context, string) (*domain.Job, error) {
	return &domain.Job{Total: 30 + d.rig.diskBytes, DiskTotal: d.rig.diskBytes, Processed: 20, Remaining: 10}, nil
}

// rig is Moves on fakes. It is the lifecycle, too.
type rig struct {
	*move.Moves

	dir     string
	script  *vmtest.Script
	store   *vmtest.Store
	libvirt *vmtest.Libvirt
	groups  *vmtest.Groups
	table   *table.Table
	tasks   *background.Tasks
	layout  layout.Layout

	mu       sync.Mutex
	calls    []string
	messages []string
	// disks are those of the last domain that was described.
	disks []vmspec.Disk
	// volumes are those of the attachment pods, by their containers.
	volumes map[string]*runtimeapi.ContainerConfig
	// live says that QEMU can copy the memory of a guest that runs.
	live bool
	// diskBytes is the size of the disks that libvirt copies.
	diskBytes uint64
	// other is the disk whose file is another one here.
	other string
	// announced has an entry for each announcement of a guest, which says whether it was here.
	announced []bool
	// looks is called while a source looks at its domain; may be nil.
	looks func()
}

var errOther = errors.New("another file")

func (r *rig) described(all []vmspec.Disk) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.disks = all
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return newRigOn(t, domain.TCG)
}

// newRigOn returns a rig whose guests run on an accelerator.
func newRigOn(t *testing.T, on domain.Accelerator) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "m") // short enough for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &vmtest.Script{}
	r := &rig{dir: dir, script: s, groups: vmtest.NewGroups(s), store: vmtest.NewStore(s, filepath.Join(dir, "c")), libvirt: vmtest.NewLibvirt(s)}
	r.table = table.New(r.store, uint32(os.Getuid()), 4)
	r.tasks = background.New()
	t.Cleanup(r.tasks.Stop)
	r.layout = layout.Layout{Folder: r.store.ContainerDir, Migrations: filepath.Join(dir, "s")}
	if err := os.Mkdir(r.layout.Migrations, 0o700); err != nil {
		t.Fatal(err)
	}
	both := domains{r.libvirt.Lifecycle, r.libvirt.Observer, r}
	r.Moves = move.New(move.Options{
		Table: r.table, Tasks: r.tasks, Domains: both, Copies: both, Disks: r, Groups: r.groups, Sandboxes: r, Conditions: r, Pods: r,
		Life: func() move.Life { return r },
		Describe: func(c record.Container) domain.Description {
			r.described(c.Spec.Disks)
			c.Spec.Interfaces, c.Spec.Disks = nil, nil // a card needs a network, and a disk content
			return domain.Description{Name: c.Domain.Name, UUID: c.Domain.UUID, Spec: c.Spec, Accelerator: domain.TCG, Emulator: "/qemu"}
		},
		Hooks:  vmtest.NewHooks(s),
		Listen: func(context.Context, string, uint16) (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") },
		Dial: func(ctx context.Context, _ string, to netip.AddrPort) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
		},
		ListenNode: func(_ context.Context, a netip.Addr) (net.Listener, error) {
			_ = r.note("listen on node " + a.String())
			return net.Listen("tcp", "127.0.0.1:0")
		},
		DialNode: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			_ = r.note("dial a node")
			return (&net.Dialer{}).DialContext(ctx, "tcp", to.String())
		},
		Libvirtd: filepath.Join(dir, "none"), Accelerator: on, CPU: "Intel 6/85/7", Layout: r.layout, Limits: handover.DefaultLimits(),
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	return r
}

func (r *rig) note(call string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
	return nil
}

// said returns the calls to the lifecycle, and forgets them.
func (r *rig) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := strings.Join(r.calls, ", ")
	r.calls = nil
	return all
}

func (r *rig) Place(context.Context, *table.VM) error { return r.note("place") }

func (r *rig) PassTaps(context.Context, *table.VM) (io.Closer, error) { return io.NopCloser(nil), nil }

func (r *rig) Admit(ctx context.Context, v *table.VM) error {
	if v.Record().Incoming == "" {
		return nil
	}
	return errors.Join(r.note("admit"), r.change(ctx, v, func(c *record.Container) { c.Incoming = "" }))
}

func (r *rig) Refuse(ctx context.Context, v *table.VM, reason string) error {
	if v.Record().State == record.Exited {
		return nil
	}
	return errors.Join(r.note("refuse: "+reason), r.change(ctx, v, func(c *record.Container) { c.State = record.Exited }))
}

func (r *rig) Yield(*table.VM) error                    { return r.note("yield") }
func (r *rig) Reclaim(*table.VM) error                  { return r.note("reclaim") }
func (r *rig) Reserve(context.Context, *table.VM) error { return r.note("reserve") }
func (r *rig) Inherit(*table.VM) error                  { return r.note("inherit") }
func (r *rig) Announce(v *table.VM) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.announced = append(r.announced, r.Here(v))
}
func (r *rig) Free(*table.VM)                          {}
func (r *rig) Settle(context.Context, *table.VM) error { return r.note("settle") }

func (r *rig) change(ctx context.Context, v *table.VM, do func(*record.Container)) error {
	unlock, err := v.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	c := v.Record()
	do(&c)
	return r.table.Put(v, c)
}

func (r *rig) Attach(context.Context, record.Container) (map[string][]*os.File, error) {
	return nil, r.note("attach")
}

// Acquire implements disk's: the image of a disk is its own name.
func (r *rig) Acquire(_ context.Context, _ record.Container, d vmspec.Disk) (record.Disk, error) {
	if !d.Registry() {
		return record.Disk{}, nil
	}
	return record.Disk{Image: &imageunpack.Disk{ImageID: d.Image, Path: d.Path}}, r.note("acquire " + d.Name)
}

func (r *rig) Unplug(_ context.Context, _ record.Container, d vmspec.Disk) error {
	return r.note("unplug " + d.Name)
}

func (r *rig) Same(_ record.Container, d vmspec.Disk) error {
	if d.Name == r.other {
		return errOther
	}
	return r.note("look at " + d.Name)
}

// Length implements disk's: each PVC has a length of 512 bytes, and Fit makes others that.
func (r *rig) Length(_ record.Container, d vmspec.Disk) (int64, error) {
	if !d.Copies() {
		return 0, errOther
	}
	return 512, nil
}

func (r *rig) Fit(_ record.Container, d vmspec.Disk, length int64) (int64, error) {
	if d.Name == r.other {
		return 0, errOther
	}
	return length, r.note("fit " + d.Name)
}

func (r *rig) NetworkNamespace(context.Context, string) (string, error) { return "/run/netns/x", nil }

func (r *rig) SetUnsettled(_ *table.VM, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, message)
}

func (r *rig) message() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.messages) == 0 {
		return ""
	}
	return r.messages[len(r.messages)-1]
}

// vm adds a VM that runs, or that waits for the guest of a migration.
func (r *rig) vm(t *testing.T, name, incoming string) *table.VM {
	t.Helper()
	c := record.Container{
		ID: strings.Repeat(name, 64), SandboxID: name, State: record.Running, Incoming: incoming,
		Domain: record.Domain{Name: "vm-" + name, UUID: vmID, UID: uint32(os.Getuid()), GID: uint32(os.Getgid())},
		Spec: vmspec.Spec{
			CPU: vmspec.CPU{Sockets: 1, Cores: 1, Threads: 1}, Memory: 64 << 20, Machine: "q35",
		},
		Disks: map[string]record.Disk{"root": {Image: &imageunpack.Disk{ImageID: "sha256:1", Path: "/disk"}}},
	}
	if incoming != "" {
		c.Domain.UUID = strings.Replace(vmID, "7c", "8c", 1)
	}
	c.Sandbox.Value = &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: name}}
	c.Config.Value = &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "vm"}}
	if err := r.store.PutContainer(c); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(r.layout.Folder(c.ID), 0o700); err != nil {
		t.Fatal(err)
	}
	r.groups.SetUse(c.ID, cgroup.Stats{}, 0)
	return r.table.Recover(c)
}

// guest gives a VM a domain in a state.
func (r *rig) guest(t *testing.T, v *table.VM, paused domain.Reason) {
	t.Helper()
	c := v.Record()
	text := "<domain><name>" + c.Domain.Name + "</name><uuid>" + vmID + "</uuid></domain>"
	err := r.libvirt.Lifecycle.Define(t.Context(), text)
	if err == nil {
		_, err = r.libvirt.Lifecycle.Start(t.Context(), vmID, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if paused == domain.ReasonNone {
		if err := r.libvirt.Lifecycle.Resume(t.Context(), vmID); err != nil {
			t.Fatal(err)
		}
		return
	}
	r.libvirt.Pause(vmID, paused)
}

// put writes the record of a migration.
func (r *rig) put(t *testing.T, v *table.VM, state handover.State, ended bool) {
	t.Helper()
	rec := handover.NewIncoming(uid, vmID)
	rec.State, rec.Ended = state, ended
	if err := handover.NewFile(r.layout.Folder(v.Record().ID)).Put(rec); err != nil {
		t.Fatal(err)
	}
}

// do gives an order.
func do[R any](t *testing.T, r *rig, v *table.VM, control string, argument any) (answer R, err error) {
	t.Helper()
	text, err := json.Marshal(argument)
	if err != nil {
		t.Fatal(err)
	}
	out, err := r.Do(t.Context(), v, control, string(text))
	if err == nil {
		err = json.Unmarshal(out, &answer)
	}
	return answer, err
}

func wantError(t *testing.T, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("error %v; want %q", err, words)
	}
}

// TestCheck has each reason for which a VM stays on its node.
func TestCheck(t *testing.T) {
	r := newRig(t)
	got := record.Container{Plugged: []record.PluggedDisk{{State: record.Attached, Disk: vmspec.Disk{Source: vmspec.SourceImport}, Order: scsi("data")}}}
	wantError(t, r.Check(got), "is imported from another node")
	wantError(t, r.Check(record.Container{}.WithMemoryDump(record.MemoryDump{State: record.DumpWriting})), "its memory is being dumped")
	wantError(t, r.Check(record.Container{Saving: &record.Saving{}}), "while its memory is saved")
	if why := r.Stays(record.Container{Saving: &record.Saving{}}); strings.Contains(why, "saved") {
		t.Errorf("a VM that is saved for a moment stays on its node: %s", why)
	}
	for words, change := range map[string]func(*vmspec.Spec){
		"": func(s *vmspec.Spec) {
			s.Interfaces = append(s.Interfaces, vmspec.Interface{Name: "lan", Binding: vmspec.BindingBridge, Device: "net1"})
		},
		"binding bridge": func(s *vmspec.Spec) {
			s.Interfaces = []vmspec.Interface{
				{Name: "lan", Binding: vmspec.BindingBridge, Device: "net1"}, {Name: "n", Binding: vmspec.BindingBridge, Device: "eth0"},
			}
		},
		"forward all TCP ports from 49152": func(s *vmspec.Spec) {
			for n := 49152; n <= 65535; n++ {
				s.Interfaces[0].Ports = append(s.Interfaces[0].Ports, vmspec.Port{Protocol: "tcp", Number: uint16(n)})
			}
		},
		"file systems": func(s *vmspec.Spec) { s.Filesystems = []vmspec.Filesystem{{}} },
		"encrypted for its node": func(s *vmspec.Spec) {
			s.LaunchSecurity = &vmspec.LaunchSecurity{Encryption: vmspec.EncryptionSEV}
		},
		"all Hyper-V features":   func(s *vmspec.Spec) { s.Board.Hyperv = &vmspec.Hyperv{Passthrough: true} },
		`disk "d" has the mode`:  func(s *vmspec.Spec) { s.Disks = disk(vmspec.SourceImage, vmspec.ModeISCSI) },
		`disk "d" is a hostDisk`: func(s *vmspec.Spec) { s.Disks = disk(vmspec.SourceHostDisk, "") },
		`disk "d" is imported`:   func(s *vmspec.Spec) { s.Disks = disk(vmspec.SourceImport, "") },
	} {
		var c record.Container
		c.Spec.Interfaces = []vmspec.Interface{{Name: "n", Binding: vmspec.BindingMasquerade}}
		c.Spec.TPM, c.Spec.Hooks = true, &vmspec.Hooks{} // the TPM's state is in QEMU's stream
		c.Spec.State = &vmspec.State{TPM: true, Variables: true}
		c.Spec.Firmware.UEFI, c.Spec.Board.Hyperv = &vmspec.UEFI{}, &vmspec.Hyperv{}
		c.Spec.Disks = slices.Concat(disk(vmspec.SourceImage, vmspec.ModeFile), disk(vmspec.SourceEmpty, ""), disk(vmspec.SourceSeed, ""),
			disk(vmspec.SourcePVC, ""), disk(vmspec.SourceISCSI, ""), disk(vmspec.SourceRBD, ""), disk(vmspec.SourceEphemeral, ""),
			[]vmspec.Disk{{Source: vmspec.SourceHostDisk, Shared: true}})
		change(&c.Spec)
		if err := r.Check(c); words != "" {
			wantError(t, err, words)
		} else if err != nil {
			t.Error(err)
		}
	}
}

// bridged gives a VM's guest the address of its pod, which moves with it.
func bridged(c *record.Container) {
	c.Spec.Interfaces = []vmspec.Interface{{Name: "default", Binding: vmspec.BindingBridge, Device: "eth0"}}
	c.Sandbox.Value.Annotations = map[string]string{kubevirt.AllowPodBridgeNetworkLiveMigrationAnnotation: ""}
	c.Network = &netsetup.Plan{NICs: []netsetup.NIC{{
		Card: "default", Binding: netsetup.Bridge, GuestMAC: netsetup.MAC{2, 0, 0, 0, 0, 2},
		IPv4: netsetup.Addressing{Address: netip.MustParsePrefix("10.0.0.2/24")},
	}}}
}

// TestPodAddress: a guest with its pod's address moves between the nodes' addresses, to a pod with the
// same address alone.
func TestPodAddress(t *testing.T) {
	from, to := newRig(t), newRig(t)
	source, target := from.vm(t, "a", ""), to.vm(t, "b", uid)
	from.guest(t, source, domain.ReasonNone)
	if err := errors.Join(from.change(t.Context(), source, bridged), to.change(t.Context(), target, bridged)); err != nil {
		t.Fatal(err)
	}
	moved := order.Migration{Migration: uid}
	id, err := do[order.Identity](t, from, source, order.Identify, moved)
	if err != nil {
		t.Fatal(err)
	}
	reception := order.Reception{Migration: moved, Source: id.Fingerprint, Guest: id.Guest}
	_, err = do[order.Identity](t, to, target, order.Receive, reception)
	wantError(t, err, "names no address of the node")
	reception.Node = netip.MustParseAddr("192.0.2.7")
	elsewhere := func(c *record.Container) {
		c.Network.NICs[0].IPv4.Address = netip.MustParsePrefix("10.0.0.3/24")
	}
	if err := to.change(t.Context(), target, elsewhere); err != nil {
		t.Fatal(err)
	}
	_, err = do[order.Identity](t, to, target, order.Receive, reception)
	wantError(t, err, "its network must give the same MAC and IP addresses to both pods")
	if err := to.change(t.Context(), target, bridged); err != nil {
		t.Fatal(err)
	}
	to.said()
	reached, err := do[order.Identity](t, to, target, order.Receive, reception)
	if err != nil || to.said() != "attach, listen on node 192.0.2.7" {
		t.Fatalf("%+v, %v", reached, err)
	}
	if _, err := do[order.Report](t, from, source, order.Send, order.Sending{Migration: moved, Target: reached}); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return strings.Contains(from.said(), "dial a node") })
}

// TestPort gives the port to the guest if a card forwards it by name, whatever its order.
func TestPort(t *testing.T) {
	named := func(ports ...vmspec.Port) vmspec.Interface { return vmspec.Interface{Ports: ports} }
	tcp := func(n uint16) vmspec.Port { return vmspec.Port{Protocol: "tcp", Number: n} }
	for want, interfaces := range map[uint16][]vmspec.Interface{
		49152: {named(), named(vmspec.Port{Protocol: "udp", Number: 49152})},
		50001: {named(vmspec.Port{Protocol: "tcp", Number: 1, End: 50000}, vmspec.Port{Protocol: "udp", Number: 1, End: 60000})},
		0:     {named(vmspec.Port{Protocol: "tcp", Number: 1, End: 65535})},
		49154: {named(tcp(49153)), named(tcp(80), tcp(49152))},
	} {
		if got := move.Port(vmspec.Spec{Interfaces: interfaces}); got != want {
			t.Errorf("the port is %d, want %d", got, want)
		}
	}
}

func disk(s vmspec.Source, m vmspec.Mode) []vmspec.Disk {
	return []vmspec.Disk{{Name: "d", Source: s, Mode: m, Target: "vda"}}
}
