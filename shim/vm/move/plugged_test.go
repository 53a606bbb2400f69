package move_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/record"
	plug "github.com/nodevirt/nodevirt/shim/vm/hotplug/order"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

const podUID = "0d2c5a5e-0000-4000-8000-00000000000a"

// ContainerStatus and PodSandboxStatus are containerd's, of attachment pods.
func (r *rig) ContainerStatus(_ context.Context, in *runtimeapi.ContainerStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	config, is := r.volumes[in.ContainerId]
	if !is {
		return nil, fmt.Errorf("container %s not found", in.ContainerId)
	}
	info, err := json.Marshal(map[string]any{"sandboxID": "hp", "config": config})
	return &runtimeapi.ContainerStatusResponse{
		Status: &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_RUNNING}, Info: map[string]string{"info": string(info)},
	}, err
}

func (r *rig) PodSandboxStatus(context.Context, *runtimeapi.PodSandboxStatusRequest, ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error) {
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "hp"}, State: runtimeapi.PodSandboxState_SANDBOX_READY,
		Annotations: map[string]string{plug.Annotation: podUID},
	}}, nil
}

// hold adds the container of an attachment pod, which mounts volumes.
func (r *rig) hold(id string, volumes ...string) {
	config := &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "volumes"}}
	for _, name := range volumes {
		config.Mounts = append(config.Mounts, &runtimeapi.Mount{ContainerPath: "/volumes/" + name, HostPath: "/pods/hp/" + name})
	}
	if r.volumes == nil {
		r.volumes = map[string]*runtimeapi.ContainerConfig{}
	}
	r.volumes[strings.Repeat(id, 64)] = config
}

// withDrive gives a VM a boot disk, an empty drive, and the identity of a pod.
func (r *rig) withDrive(t *testing.T, v *table.VM, change ...func(*record.Container)) {
	t.Helper()
	assert.NilError(t, r.change(t.Context(), v, func(c *record.Container) {
		c.Sandbox.Value.Metadata.Uid = podUID
		c.Spec.Disks = []vmspec.Disk{
			{Name: "root", Source: vmspec.SourceImage, Bus: vmspec.BusVirtio, Target: "vda"},
			{Name: "media", Source: vmspec.SourceDrive, Bus: vmspec.BusSATA, Target: "sda", CDROM: true, Serial: "drive"},
		}
		for _, do := range change {
			do(c)
		}
	}))
}

func scsi(name string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"name": %q, "disk": {"bus": "scsi"}}`, name))
}

// TestDeparture: the source describes the disks that its guest has got, and the guest stays while one is on its way.
func TestDeparture(t *testing.T) {
	r := newRig(t)
	v := r.vm(t, "a", "")
	r.guest(t, v, domain.ReasonNone)
	put := func(p record.PluggedDisk) {
		t.Helper()
		p.Disk = vmspec.Disk{Name: "data", Source: vmspec.SourcePVC, Bus: vmspec.BusSCSI, Target: "sdb"}
		r.withDrive(t, v, func(c *record.Container) { c.Plugged = []record.PluggedDisk{p} })
	}
	for _, state := range []record.PlugState{record.Attaching, record.Detaching} {
		put(record.PluggedDisk{State: state, Order: scsi("data")})
		_, err := do[order.Identity](t, r, v, order.Identify, order.Migration{Migration: uid})
		wantError(t, err, `disk "data" is being attached or detached`)
		assert.Equal(t, r.Stays(v.Record()), "")
	}
	put(record.PluggedDisk{State: record.Attached})
	_, err := do[order.Identity](t, r, v, order.Identify, order.Migration{Migration: uid})
	wantError(t, err, `disk "data" was attached by an older version`)
	put(record.PluggedDisk{State: record.Attached, Order: scsi("data")})
	i, err := do[order.Identity](t, r, v, order.Identify, order.Migration{Migration: uid})
	assert.NilError(t, err)
	assert.Equal(t, len(i.Guest.Plugged), 1)
	got := i.Guest.Plugged[0]
	assert.Equal(t, got.Name+" "+got.Target, "data sdb")
	assert.Assert(t, strings.Contains(string(got.Disk), `"bus"`))
}

// TestArrival: the target has the disks that the guest has got on the source, on its own attachment pod's volumes.
func TestArrival(t *testing.T) {
	r := newRig(t)
	r.hold("c", "data", "media", "root")
	v := r.vm(t, "b", uid)
	r.withDrive(t, v)
	id := strings.Repeat("c", 64)
	wanted := func(all ...order.Plugged) order.Reception {
		return order.Reception{
			Migration: order.Migration{Migration: uid}, Source: strings.Repeat("ab", 32), Volumes: map[string]string{"data": id, "media": id, "root": id},
			Guest: &order.Guest{UUID: vmID, Disks: map[string]string{"root": "sha256:1 /disk"}, Plugged: all},
		}
	}
	data := order.Plugged{Name: "data", Target: "sdb", Disk: scsi("data")}
	media := order.Plugged{Name: "media", Target: "sda", Disk: json.RawMessage(`{"name": "media", "cdrom": {"bus": "sata"}}`)}
	for words, a := range map[string]order.Reception{
		"the limit is 64":                        wanted(make([]order.Plugged, order.MaxPlugged+1)...),
		`names no volume for disk "other"`:       wanted(order.Plugged{Name: "other", Target: "sdb", Disk: scsi("other")}),
		"the disk is not JSON":                   wanted(order.Plugged{Name: "data", Target: "sdb", Disk: json.RawMessage(`[]`)}),
		`disk "data" "data", on "sdb"`:           wanted(data, data),
		`disk "data" "media", on "sdb"`:          wanted(order.Plugged{Name: "media", Target: "sdb", Disk: scsi("data")}),
		`disk "data" "data", on "vdb"`:           wanted(order.Plugged{Name: "data", Target: "vdb", Disk: scsi("data")}),
		`disk "data" "data", on "../x"`:          wanted(order.Plugged{Name: "data", Target: "../x", Disk: scsi("data")}),
		`starts with disk "media" on sda here`:   wanted(order.Plugged{Name: "data", Target: "sda", Disk: scsi("data")}),
		`starts with disk "root" on vda here`:    wanted(order.Plugged{Name: "root", Target: "sdb", Disk: scsi("root")}),
		`has no empty CD-ROM drive "data" here`:  wanted(order.Plugged{Name: "data", Target: "sdb", Disk: json.RawMessage(`{"name": "data", "cdrom": {"bus": "sata"}}`)}),
		`disk "media" on "sdb": the VM starts w`: wanted(order.Plugged{Name: "media", Target: "sdb", Disk: media.Disk}),
	} {
		_, err := do[order.Identity](t, r, v, order.Receive, a)
		wantError(t, err, words)
	}
	other := wanted(data)
	other.Volumes["data"] = strings.Repeat("d", 64)
	_, err := do[order.Identity](t, r, v, order.Receive, other)
	wantError(t, err, "not found")
	assert.Equal(t, len(v.Record().Plugged), 0)

	r.said()
	// An order that failed later attached others.
	r.withDrive(t, v, func(c *record.Container) { c.Plugged = []record.PluggedDisk{{Disk: vmspec.Disk{Name: "former"}}} })
	_, err = do[order.Identity](t, r, v, order.Receive, wanted(data, media))
	assert.NilError(t, err)
	assert.Equal(t, r.said(), "look at data, look at media, unplug former, attach")
	want := []record.PluggedDisk{
		{
			State: record.Attached, Container: id, Set: 0, Came: true,
			Disk: vmspec.Disk{Name: "data", Source: vmspec.SourcePVC, Host: "/pods/hp/data", Bus: vmspec.BusSCSI, Target: "sdb", Serial: "data", ErrorPolicy: "stop"},
		},
		{
			State: record.Attached, Container: id, Set: 1, Came: true,
			Disk: vmspec.Disk{Name: "media", Source: vmspec.SourcePVC, Host: "/pods/hp/media", Bus: vmspec.BusSATA, Target: "sda", CDROM: true, ReadOnly: true, ErrorPolicy: "stop"},
		},
	}
	got := v.Record().Plugged
	for i := range got {
		assert.Assert(t, len(got[i].Order) > 0)
		got[i].Order = nil
	}
	assert.DeepEqual(t, got, want)
	assert.Equal(t, len(v.Record().Spec.Disks), 2)
	// The domain has all from its start, and the drive keeps what is its own.
	medium := want[1].Disk
	medium.Serial = "drive"
	assert.DeepEqual(t, r.disks[1:], []vmspec.Disk{medium, want[0].Disk})
}

// TestImagesMove: the target has the image of a registry disk that the guest has got, and refuses another one than the
// source's.
func TestImagesMove(t *testing.T) {
	r := newRig(t)
	r.hold("c", "data")
	id := strings.Repeat("c", 64)
	r.volumes[id].Mounts = append(r.volumes[id].Mounts,
		&runtimeapi.Mount{ContainerPath: "/volumes/tools", Image: &runtimeapi.ImageSpec{Image: "sha256:2"}})
	tools := json.RawMessage(`{"name": "tools", "disk": {"bus": "scsi", "readonly": true}}`)
	from := r.vm(t, "a", "")
	r.guest(t, from, domain.ReasonNone)
	disk := vmspec.Disk{Name: "tools", Source: vmspec.SourceVolume, Image: "sha256:2", Path: "a", Bus: vmspec.BusSCSI, Target: "sdc", ReadOnly: true}
	r.withDrive(t, from, func(c *record.Container) {
		c.Plugged = []record.PluggedDisk{{
			State: record.Attached, Order: tools, Disk: disk, Content: record.Disk{Image: &imageunpack.Disk{ImageID: "sha256:2", Path: "a"}},
		}}
	})
	i, err := do[order.Identity](t, r, from, order.Identify, order.Migration{Migration: uid})
	assert.NilError(t, err)
	assert.DeepEqual(t, i.Guest.Plugged, []order.Plugged{{Disk: i.Guest.Plugged[0].Disk, Name: "tools", Target: "sdc", Path: "/disk/a", Content: "sha256:2 a"}})

	r.withDrive(t, from, func(c *record.Container) { c.Domain.UUID = "00000000-0000-4000-8000-000000000000" }) // as on another node
	to := r.vm(t, "b", uid)
	r.withDrive(t, to)
	receive := func(content string) error {
		_, err := do[order.Identity](t, r, to, order.Receive, order.Reception{
			Migration: order.Migration{Migration: uid}, Source: strings.Repeat("ab", 32), Volumes: map[string]string{"data": id, "tools": id},
			Guest: &order.Guest{UUID: vmID, Disks: map[string]string{"root": "sha256:1 /disk"}, Plugged: []order.Plugged{
				{Name: "data", Target: "sdb", Disk: scsi("data")},
				{Name: "tools", Target: "sdc", Disk: tools, Path: "/disk/a", Content: content},
			}},
		})
		return err
	}
	r.said()
	wantError(t, receive("sha256:3 a"), "disk \"tools\" is sha256:2 a here and \"sha256:3 a\" on the source: the image's tag has changed")
	assert.Equal(t, r.said(), "look at data, look at tools, acquire tools, unplug data, unplug tools")
	assert.Equal(t, len(to.Record().Plugged), 0)
	assert.NilError(t, receive("sha256:2 a"))
	assert.Equal(t, to.Record().Plugged[1].Content.Image.ImageID, "sha256:2")
	assert.Equal(t, to.Record().AsStarted().Disks["tools"].Image.Path, "a")
}

// TestDepartureWithCards: a guest moves with the network cards that it has got, which are the target's own, and not
// while one comes or goes.
func TestDepartureWithCards(t *testing.T) {
	r := newRig(t)
	v := r.vm(t, "a", "")
	r.guest(t, v, domain.ReasonNone)
	put := func(state record.PlugState) {
		t.Helper()
		card := record.PluggedCard{State: state, Card: vmspec.Interface{Name: "lan"}}
		card.Network.NICs = []netsetup.NIC{{Card: "lan", GuestMAC: netsetup.MAC{2, 0, 0, 0, 0, 9}}}
		r.withDrive(t, v, func(c *record.Container) { c.Cards = []record.PluggedCard{card} })
	}
	for _, state := range []record.PlugState{record.Attaching, record.Detaching} {
		put(state)
		_, err := do[order.Identity](t, r, v, order.Identify, order.Migration{Migration: uid})
		wantError(t, err, `network card "lan" is being attached or detached`)
	}
	put(record.Attached)
	identity, err := do[order.Identity](t, r, v, order.Identify, order.Migration{Migration: uid})
	assert.NilError(t, err)
	assert.Equal(t, identity.Guest.Cards["lan"], "02:00:00:00:00:09")
}
