package hotplug_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug"
	"github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
	"github.com/nodevirt/nodevirt/shim/vm/vmtest"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const podUID = "0d2c5a5e-0000-4000-8000-000000000001"

// errRefused is what a scripted call fails with.
var errRefused = errors.New("refused")

// rig is Hotplugs on fakes: those of its neighbours that it implements itself are maps.
type rig struct {
	*hotplug.Hotplugs
	store *vmtest.Store
	table *table.Table
	vm    *table.VM

	mu sync.Mutex
	// attached are the targets in QEMU, by the sets that are open in it; a set is open
	// without a target after a failure half-way.
	attached map[int]string
	reserved map[string]bool // volumes
	held     map[string]bool // images
	// stubborn is a guest that releases nothing; away is a libvirtd that does not answer.
	stubborn, away bool
	// failing fails an attachment, before or after the disk is there.
	failing  string
	requests int
	moving   bool
	// hangs keeps who opens a volume, until it is closed; nil for none.
	hangs chan struct{}
	// came says that the disks came with their guest.
	came bool
	// sizes are those of the disks, by their targets.
	sizes   map[string]int64
	updates int
	looks   int
	// down are the cards in QEMU without a link.
	down []string
	// cards are those that QEMU has got, networks those of attachment pods by their taps, and kept those that
	// are served.
	cards    map[string]bool
	networks map[string]network
	kept     []string

	container *runtimeapi.ContainerStatusResponse
	pod       *runtimeapi.PodSandboxStatus
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s := &vmtest.Script{}
	r := &rig{store: vmtest.NewStore(s, t.TempDir()), attached: map[int]string{}, reserved: map[string]bool{}, held: map[string]bool{}, sizes: map[string]int64{}, cards: map[string]bool{}, networks: map[string]network{}}
	c := record.Container{ID: "c", SandboxID: "s", State: record.Running}
	c.Sandbox.Value = &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod", Namespace: "shop", Uid: podUID}}
	c.Config.Value = &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "vm"}}
	c.Domain = record.Domain{Name: "d", UUID: "u"}
	c.Spec.Disks = []vmspec.Disk{{Name: "boot", Bus: vmspec.BusSATA, Target: "sda"}}
	assert.NilError(t, r.store.PutContainer(c))
	r.pod = &runtimeapi.PodSandboxStatus{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "hp", Namespace: "shop"}, State: runtimeapi.PodSandboxState_SANDBOX_READY,
		Annotations: map[string]string{order.Annotation: podUID},
	}
	config := &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "volumes"}}
	for i := range 100 {
		config.Mounts = append(config.Mounts, &runtimeapi.Mount{ContainerPath: fmt.Sprintf("/volumes/v%d", i), HostPath: fmt.Sprintf("/pods/hp/v%d", i)})
	}
	config.Mounts = append(config.Mounts, &runtimeapi.Mount{ContainerPath: "/volumes/tools", Image: &runtimeapi.ImageSpec{Image: "sha256:1"}})
	info, err := json.Marshal(map[string]any{"sandboxID": "hp", "config": config})
	assert.NilError(t, err)
	r.container = &runtimeapi.ContainerStatusResponse{
		Status: &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_RUNNING}, Info: map[string]string{"info": string(info)},
	}
	r.start(t)
	return r
}

// start starts a shim, which reads the records.
func (r *rig) start(t *testing.T) {
	t.Helper()
	tasks := background.New()
	t.Cleanup(tasks.Stop)
	r.table = table.New(r.store, 1000, 4)
	on, _ := r.store.Container("c")
	r.vm = r.table.Recover(on)
	r.Hotplugs = hotplug.New(hotplug.Options{
		Table: r.table, Tasks: tasks, Domains: (*domains)(r), Cards: (*domains)(r), Networks: (*networks)(r), Volumes: (*volumes)(r), Moves: r, Pods: r, Conditions: r, Agents: r,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	r.Recover()
}

// locked changes the rig while its domain may be in use.
func (r *rig) locked(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *rig) Moving(*table.VM) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.moving
}

func (r *rig) Update(*table.VM)    { r.locked(func() { r.updates++ }) }
func (r *rig) LookAgain(*table.VM) { r.locked(func() { r.looks++ }) }

func (r *rig) ContainerStatus(_ context.Context, in *runtimeapi.ContainerStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	if in.GetContainerId() != id {
		return nil, errRefused
	}
	return r.container, nil
}

func (r *rig) PodSandboxStatus(_ context.Context, in *runtimeapi.PodSandboxStatusRequest, _ ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error) {
	if in.GetPodSandboxId() != "hp" {
		return nil, errRefused
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: r.pod}, nil
}

// domains is a libvirtd with one domain.
type domains rig

func (d *domains) enter() (func(), error) {
	d.mu.Lock()
	if d.away {
		d.mu.Unlock()
		return nil, domain.ErrUnavailable
	}
	return d.mu.Unlock, nil
}

func (d *domains) Attach(_ context.Context, _ string, p domain.PluggedDisk, f *os.File) error {
	if on, _ := d.store.Container("c"); on.FindPlugged(p.Spec.Name) < 0 {
		return errors.New("it is not recorded")
	}
	if _, err := f.Stat(); err != nil {
		return err
	}
	done, err := d.enter()
	if err != nil {
		return err
	}
	defer done()
	d.attached[p.Set] = ""
	if d.failing == "before" {
		return errRefused
	}
	d.attached[p.Set] = p.Spec.Target
	if d.failing == "after" {
		d.away = true
		return domain.ErrUnavailable
	}
	return nil
}

func (d *domains) Request(_ context.Context, _, target string) error {
	done, err := d.enter()
	if err != nil {
		return err
	}
	defer done()
	d.requests++
	for set, t := range d.attached {
		if t == target && !d.stubborn {
			d.attached[set] = ""
		}
	}
	return nil
}

func (d *domains) Targets(context.Context, string) (map[string]bool, error) {
	done, err := d.enter()
	if err != nil {
		return nil, err
	}
	defer done()
	all := map[string]bool{"sda": true}
	for _, t := range d.attached {
		all[t] = true
	}
	return all, nil
}

func (d *domains) Release(_ context.Context, _ string, set int) error {
	done, err := d.enter()
	if err != nil {
		return err
	}
	defer done()
	if d.attached[set] != "" {
		return errors.New("the disk is attached")
	}
	delete(d.attached, set)
	return nil
}

func (d *domains) Grow(_ context.Context, _ string, g domain.Growth, f *os.File) error {
	if _, err := f.Stat(); err != nil {
		return err
	}
	if _, has := d.attached[0]; has && d.attached[0] == g.Target != (g.Set != nil) && !d.came {
		return errors.New("not the set of the disk")
	}
	done, err := d.enter()
	if err != nil {
		return err
	}
	defer done()
	if d.came && g.Set != nil {
		return errors.New("it came without a set")
	}
	d.sizes[g.Target] = g.Size
	return nil
}

// volumes are those of the node. One has a MiB less than its PVC.
type volumes rig

func (d *volumes) Room(_ record.Container, _ vmspec.Disk, capacity int64) (*os.File, int64, error) {
	if d.hangs != nil {
		<-d.hangs
	}
	if d.failing == "volume" {
		return nil, 0, errRefused
	}
	f, err := os.Open(os.DevNull)
	return f, capacity - 1<<20, err
}

func (d *volumes) Acquire(_ context.Context, _ record.Container, k vmspec.Disk) (record.Disk, error) {
	if !k.Registry() {
		return record.Disk{}, nil
	}
	if on, _ := d.store.Container("c"); on.FindPlugged(k.Name) < 0 {
		return record.Disk{}, errors.New("it is not recorded")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held[k.Image] = true
	if d.failing == "image" {
		return record.Disk{}, imageunpack.ErrNoDisk
	}
	return record.Disk{Image: &imageunpack.Disk{ImageID: k.Image, Path: k.Path}}, nil
}

func (d *volumes) Plug(_ context.Context, _ record.Container, p record.PluggedDisk) (domain.PluggedDisk, *os.File, error) {
	if d.hangs != nil {
		<-d.hangs
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reserved[p.Disk.Host] = true
	if on, _ := d.store.Container("c"); p.Disk.Registry() && on.Plugged[on.FindPlugged(p.Disk.Name)].Content.Image == nil {
		return domain.PluggedDisk{}, nil, errors.New("its image is not recorded")
	}
	if d.failing == "volume" {
		return domain.PluggedDisk{}, nil, errRefused
	}
	f, err := os.Open(os.DevNull)
	return domain.PluggedDisk{Spec: p.Disk, Set: p.Set}, f, err
}

func (d *volumes) Unplug(_ context.Context, _ record.Container, p vmspec.Disk) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.reserved, p.Host)
	delete(d.held, p.Image)
	return nil
}

var id = strings.Repeat("a", 64)

// order gives an order, and returns the answer.
func (r *rig) order(t *testing.T, control, argument string) (order.Disk, error) {
	t.Helper()
	text, err := r.Do(t.Context(), r.vm, control, argument)
	var d order.Disk
	if err == nil {
		assert.NilError(t, json.Unmarshal(text, &d))
	}
	return d, err
}

func (r *rig) attach(t *testing.T, name string) (order.Disk, error) {
	t.Helper()
	return r.order(t, order.Attach, fmt.Sprintf(`{"disk": {"name": %q}, "container": %q}`, name, id))
}

func (r *rig) detach(t *testing.T, name string) (order.Disk, error) {
	t.Helper()
	return r.order(t, order.Detach, fmt.Sprintf(`{"name": %q}`, name))
}

// has checks what QEMU, the volumes and the record have, and that they agree.
func (r *rig) has(t *testing.T, state record.PlugState, n int) {
	t.Helper()
	on, _ := r.store.Container("c")
	assert.Equal(t, len(on.Plugged), n)
	assert.Equal(t, len(r.vm.Record().Plugged), n)
	r.mu.Lock()
	defer r.mu.Unlock()
	assert.Equal(t, len(r.attached), n, "in QEMU")
	assert.Equal(t, len(r.reserved), n, "volumes")
	for _, p := range on.Plugged {
		assert.Equal(t, p.State, state)
		assert.Equal(t, r.attached[p.Set], p.Disk.Target)
	}
}

func TestAttachAndDetach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		want := order.Disk{Name: "v0", State: order.Attached, Target: "sdb", Container: id}
		for range 2 { // a repeated order has no effect
			d, err := r.attach(t, "v0")
			assert.NilError(t, err)
			assert.Equal(t, d, want)
		}
		d, err := r.attach(t, "v1")
		assert.NilError(t, err)
		assert.Equal(t, d.Target, "sdc")
		r.has(t, record.Attached, 2)
		d, err = r.order(t, order.Status, `{"name": "v0"}`)
		assert.NilError(t, err)
		assert.Equal(t, d, want)
		r.locked(func() { assert.Equal(t, r.updates, 2) })

		for range 2 {
			d, err = r.detach(t, "v0")
			assert.NilError(t, err)
			assert.Equal(t, d, order.Disk{Name: "v0", State: order.None})
		}
		r.has(t, record.Attached, 1)
		// Its target and its set are free.
		d, err = r.attach(t, "v2")
		assert.NilError(t, err)
		assert.Equal(t, d.Target, "sdb")
		r.has(t, record.Attached, 2)
		if _, err := r.detach(t, "boot"); !errors.Is(err, vmerrors.ErrState) {
			t.Errorf("a disk that the VM started with: %v", err)
		}
	})
}

// TestImage: the image of a registry disk is held from before the disk is opened until the guest has lost it.
func TestImage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		attach := func() (order.Disk, error) {
			return r.order(t, order.Attach,
				fmt.Sprintf(`{"disk": {"name": "tools", "disk": {"bus": "scsi", "readonly": true}}, "container": %q, "path": "/disk/a"}`, id))
		}
		for _, failing := range []string{"image", "volume", "before"} {
			r.failing = failing
			_, err := attach()
			assert.Equal(t, errors.Is(err, vmerrors.ErrInvalid), failing == "image", "%v", err)
			r.has(t, "", 0)
			assert.Equal(t, len(r.held), 0)
		}
		r.failing = ""
		d, err := attach()
		assert.NilError(t, err)
		assert.Equal(t, d.Target, "sdb")
		r.has(t, record.Attached, 1)
		p := r.vm.Record().Plugged[0]
		assert.Equal(t, p.Content.Image.ImageID+" "+p.Content.Image.Path, "sha256:1 a")
		assert.DeepEqual(t, r.held, map[string]bool{"sha256:1": true})
		_, err = r.detach(t, "tools")
		assert.NilError(t, err)
		r.has(t, "", 0)
		assert.Equal(t, len(r.held), 0)
	})
}

// TestBuses: a disk gets the next target of its bus, and a medium that of its drive, which it
// can get again.
func TestBuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.vm.Record()
		c.Spec.Disks = append(c.Spec.Disks, vmspec.Disk{Name: "v0", Source: vmspec.SourceDrive, Bus: vmspec.BusSATA, CDROM: true, Target: "sdb"})
		r.vm.Publish(c)
		plug := func(name, device string) (order.Disk, error) {
			return r.order(t, order.Attach, fmt.Sprintf(`{"disk": {"name": %q, %s}, "container": %q}`, name, device, id))
		}
		for range 2 {
			d, err := plug("v0", `"cdrom": {"bus": "scsi"}`)
			assert.NilError(t, err)
			assert.Equal(t, d.Target, "sdb")
			assert.Equal(t, r.vm.Record().Plugged[0].Disk.Bus, vmspec.BusSATA)
			for range 2 {
				d, err = r.detach(t, "v0")
				assert.NilError(t, err)
				assert.Equal(t, d.State, order.None)
			}
			r.has(t, "", 0)
		}
		d, err := plug("v1", `"disk": {"bus": "virtio"}`)
		assert.NilError(t, err)
		assert.Equal(t, d.Target, "vda")
		c = r.vm.Record()
		c.Spec.Transitional = true
		r.vm.Publish(c)
		if _, err := plug("v2", `"disk": {"bus": "virtio"}`); !errors.Is(err, vmerrors.ErrState) {
			t.Errorf("a disk on virtio for old drivers: %v", err)
		}
		if _, err := plug("v0", `"disk": {"bus": "scsi"}`); !errors.Is(err, vmerrors.ErrExists) {
			t.Errorf("a disk of a drive's name: %v", err)
		}
	})
}

// TestGrow: disks on PVCs grow, those that the VM started with and those that it got.
func TestGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.vm.Record()
		c.Spec.Disks = append(c.Spec.Disks,
			vmspec.Disk{Name: "data", Source: vmspec.SourcePVC, Target: "vda"},
			vmspec.Disk{Name: "fixed", Source: vmspec.SourcePVC, Target: "vdb", ReadOnly: true})
		r.vm.Publish(c)
		_, err := r.attach(t, "v0")
		assert.NilError(t, err)
		grow := func(name string) (order.Disk, error) {
			return r.order(t, order.Grow, fmt.Sprintf(`{"name": %q, "size": %d}`, name, 3<<20))
		}
		for name, want := range map[string]order.Disk{
			"data": {Target: "vda", Size: 2 << 20}, "v0": {Target: "sdb", Size: 2 << 20}, "fixed": {Target: "vdb"}, "boot": {Target: "sda"},
		} {
			want.Name, want.State = name, order.Attached
			d, err := grow(name)
			assert.NilError(t, err, name)
			assert.Equal(t, d, want)
		}
		assert.DeepEqual(t, r.sizes, map[string]int64{"vda": 2 << 20, "sdb": 2 << 20})
		r.failing = "volume"
		if _, err := grow("data"); !errors.Is(err, errRefused) {
			t.Errorf("a volume that can't be measured: %v", err)
		}
		r.locked(func() { r.stubborn = true })
		_, err = r.detach(t, "v0")
		assert.NilError(t, err)
		if _, err := grow("v0"); !errors.Is(err, vmerrors.ErrState) {
			t.Errorf("a disk that goes: %v", err)
		}
		if _, err := grow("none"); !errors.Is(err, vmerrors.ErrInvalid) {
			t.Errorf("no disk: %v", err)
		}
		c = r.vm.Record()
		c.Saving = &record.Saving{}
		r.vm.Publish(c)
		if _, err := grow("data"); !errors.Is(err, vmerrors.ErrState) {
			t.Errorf("a guest that is saved: %v", err)
		}
		c.Saving = nil
		r.vm.Publish(c)
		r.moving = true
		if _, err := grow("data"); !errors.Is(err, vmerrors.ErrState) {
			t.Errorf("a guest that moves: %v", err)
		}
		if _, err := r.detach(t, "v0"); !errors.Is(err, vmerrors.ErrState) {
			t.Errorf("a guest that moves: %v", err)
		}
	})
}

// TestManyDisks: a VM gets more disks than KubeVirt's users ask for, and not without a bound.
func TestManyDisks(t *testing.T) {
	r := newRig(t)
	for i := range 64 {
		_, err := r.attach(t, fmt.Sprintf("v%d", i))
		assert.NilError(t, err)
	}
	if _, err := r.attach(t, "v64"); !errors.Is(err, vmerrors.ErrRange) {
		t.Errorf("one more: %v", err)
	}
	r.has(t, record.Attached, 64)
}

// TestFailedAttachment: what an attachment that fails had made is undone.
func TestFailedAttachment(t *testing.T) {
	for _, failing := range []string{"volume", "before"} {
		r := newRig(t)
		r.failing = failing
		if _, err := r.attach(t, "v0"); !errors.Is(err, errRefused) {
			t.Errorf("%s: %v", failing, err)
		}
		r.has(t, "", 0)
		r.failing = ""
		_, err := r.attach(t, "v0")
		assert.NilError(t, err)
	}
}

// TestUnknownAttachment: libvirtd attached a disk, and its answer was lost. Nothing is
// undone, and the record follows when libvirtd is back.
func TestUnknownAttachment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.failing = "after"
		if _, err := r.attach(t, "v0"); !errors.Is(err, domain.ErrUnavailable) {
			t.Errorf("error %v", err)
		}
		d, err := r.attach(t, "v0")
		assert.NilError(t, err)
		assert.Equal(t, d.State, order.Attaching)
		r.locked(func() { r.away = false })
		time.Sleep(time.Minute)
		r.has(t, record.Attached, 1)
	})
}

// TestStubbornGuest: an order to detach answers although the guest does not, and the
// guest is asked again until it releases the disk.
func TestStubbornGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		_, err := r.attach(t, "v0")
		assert.NilError(t, err)
		r.locked(func() { r.stubborn = true })
		d, err := r.detach(t, "v0")
		assert.NilError(t, err)
		assert.Equal(t, d.State, order.Detaching)
		r.has(t, record.Detaching, 1)
		if _, err := r.attach(t, "v0"); !errors.Is(err, vmerrors.ErrState) {
			t.Errorf("attach it meanwhile: %v", err)
		}
		asked := func() (n int) {
			r.locked(func() { n = r.requests })
			return n
		}
		before := asked()
		time.Sleep(10 * time.Minute)
		if asked() <= before {
			t.Error("the guest is not asked again")
		}
		r.locked(func() { r.stubborn = false })
		time.Sleep(time.Minute)
		r.has(t, "", 0)
	})
}

// TestRestart: a new shim finds each state, and finishes or undoes it.
func TestRestart(t *testing.T) {
	for name, c := range map[string]struct {
		state    record.PlugState
		attached bool
		want     int
	}{
		"before libvirtd was asked to attach": {record.Attaching, false, 0},
		"before the answer was recorded":      {record.Attaching, true, 1},
		"of an attached disk":                 {record.Attached, true, 1},
		"of a disk that the guest ejected":    {record.Attached, false, 0},
		"before the guest was asked":          {record.Detaching, true, 0},
		"before the release was recorded":     {record.Detaching, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				_, err := r.attach(t, "v0")
				assert.NilError(t, err)
				on, _ := r.store.Container("c")
				p := on.Plugged[0]
				p.State = c.state
				assert.NilError(t, r.store.PutContainer(on.WithPlugged(p)))
				if !c.attached {
					r.attached[p.Set] = ""
				}
				r.locked(func() { r.away = true })
				r.start(t)
				time.Sleep(time.Minute)
				r.locked(func() { r.away = false })
				time.Sleep(time.Minute)
				r.has(t, record.Attached, c.want)
			})
		})
	}
}

// TestArrivedDisks: a guest's disks come with it, are grown as those of the start are, and can be detached.
func TestArrivedDisks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		_, err := r.attach(t, "v0")
		assert.NilError(t, err)
		on, _ := r.store.Container("c")
		assert.Assert(t, strings.Contains(string(on.Plugged[0].Order), "v0"))
		p := on.Plugged[0]
		p.Came = true
		on = on.WithPlugged(p)
		on.Incoming = "m"
		assert.NilError(t, r.store.PutContainer(on))
		target := r.attached[p.Set]
		r.attached[p.Set] = "" // the guest is still on its source
		r.start(t)
		time.Sleep(time.Minute)
		assert.Equal(t, len(r.vm.Record().Plugged), 1)
		if _, err := r.detach(t, "v0"); !errors.Is(err, vmerrors.ErrState) {
			t.Errorf("a guest that comes: %v", err)
		}
		r.attached[p.Set], r.came = target, true
		on.Incoming = ""
		r.vm.Publish(on)
		assert.NilError(t, r.store.PutContainer(on))
		d, err := r.order(t, order.Grow, `{"name": "v0", "size": 3145728}`)
		assert.NilError(t, err)
		assert.Equal(t, d.Size, int64(2<<20))
		_, err = r.detach(t, "v0")
		assert.NilError(t, err)
		r.has(t, record.Attached, 0)
		if _, err := r.order(t, order.Attach, fmt.Sprintf(`{"disk": {"name": "v1", "serial": %q}, "container": %q}`, strings.Repeat("x", 3<<10), id)); !errors.Is(err, vmerrors.ErrInvalid) {
			t.Errorf("a long description: %v", err)
		}
	})
}

// TestEndedVM: the end of a VM ends its orders.
func TestEndedVM(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		_, err := r.attach(t, "v0")
		assert.NilError(t, err)
		r.locked(func() { r.stubborn = true })
		go func() {
			time.Sleep(time.Second)
			c := r.vm.Record()
			c.State = record.Exited
			r.vm.Publish(c)
		}()
		d, err := r.detach(t, "v0")
		assert.NilError(t, err)
		assert.Equal(t, d.State, order.None)
		if _, err := r.attach(t, "v1"); !errors.Is(err, vmerrors.ErrState) {
			t.Errorf("attach a disk to an ended VM: %v", err)
		}
	})
}

// TestFullDisk: a disk that cannot be recorded is not attached.
func TestFullDisk(t *testing.T) {
	r := newRig(t)
	c := r.vm.Record()
	s := &vmtest.Script{}
	full := vmtest.NewStore(s, t.TempDir())
	s.Fail("Store.PutContainer", vmtest.ErrFull)
	r.store = full
	r.table = table.New(full, 1000, 4)
	r.vm = r.table.Recover(c)
	r.Hotplugs = hotplug.New(hotplug.Options{
		Table: r.table, Domains: (*domains)(r), Volumes: (*volumes)(r), Moves: r, Pods: r, Conditions: r, Agents: r, Logger: slog.New(slog.DiscardHandler),
	})
	if _, err := r.attach(t, "v0"); !errors.Is(err, vmtest.ErrFull) {
		t.Errorf("error %v", err)
	}
	assert.Equal(t, len(r.attached)+len(r.reserved), 0)
}

// TestForeignVolumes: an order names no container but one of the VM's attachment pods.
func TestForeignVolumes(t *testing.T) {
	for name, change := range map[string]func(r *rig){
		"another namespace":        func(r *rig) { r.pod.Metadata.Namespace = "other" },
		"another VM's":             func(r *rig) { r.pod.Annotations[order.Annotation] = "0d2c5a5e-0000-4000-8000-000000000002" },
		"no annotation":            func(r *rig) { r.pod.Annotations = nil },
		"a pod that stops":         func(r *rig) { r.pod.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY },
		"a container that ended":   func(r *rig) { r.container.Status.State = runtimeapi.ContainerState_CONTAINER_EXITED },
		"no verbose status":        func(r *rig) { r.container.Info = nil },
		"no config":                func(r *rig) { r.container.Info["info"] = `{"sandboxID": "hp"}` },
		"a pod that is gone":       func(r *rig) { r.container.Info["info"] = `{"sandboxID": "x"}` },
		"a guest that is moving":   func(r *rig) { r.moving = true },
		"a guest that is saved":    func(r *rig) { c := r.vm.Record(); c.Saving = &record.Saving{}; r.vm.Publish(c) },
		"a VM without a UID's pod": func(r *rig) { r.vm.Record().Sandbox.Value.Metadata.Uid = ""; r.pod.Annotations = nil },
	} {
		r := newRig(t)
		change(r)
		if d, err := r.attach(t, "v0"); err == nil {
			t.Errorf("%s: %+v", name, d)
		}
		r.has(t, "", 0)
	}
}

func TestBadOrders(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct{ control, argument, want string }{
		{order.Attach, `x`, "the argument is not JSON as expected"},
		{order.Attach, `{"disk": {"name": "v0"}, "container": "../x"}`, `"../x" is not a container's id`},
		{order.Attach, fmt.Sprintf(`{"disk": {"name": "v0"}, "container": %q}`, strings.Repeat("b", 64)), "ask containerd"},
		{order.Attach, fmt.Sprintf(`{"disk": {"name": "v0", "disk": {"bus": "sata"}}, "container": %q}`, id), "needs bus scsi"},
		{order.Attach, fmt.Sprintf(`{"disk": {"name": "v0", "cdrom": {"bus": "sata"}}, "container": %q}`, id), "not started with an empty CD-ROM drive"},
		{order.Attach, fmt.Sprintf(`{"container": %q}`, id), "invalid VM"},
		{order.Attach, fmt.Sprintf(`{"disk": {"name": "missing"}, "container": %q}`, id), "has no volume of this name"},
		{order.Detach, `{"name": "../x"}`, "is not the name of a disk"},
		{order.Status, `{}`, "is not the name of a disk"},
		{"disk-format", `{}`, `there is no control "disk-format"`},
	} {
		if _, err := r.order(t, c.control, c.argument); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v; want %q", c.control, c.argument, err, c.want)
		}
	}
	_, err := r.attach(t, "v0")
	assert.NilError(t, err)
	_, err = r.order(t, order.Attach, fmt.Sprintf(`{"disk": {"name": "v1", "serial": "v0"}, "container": %q}`, id))
	if !errors.Is(err, vmerrors.ErrInvalid) {
		t.Errorf("a serial number twice: %v", err)
	}
}
