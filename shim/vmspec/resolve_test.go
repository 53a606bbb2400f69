package vmspec_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

func fromCRI(t *testing.T, annotations map[string]string, mounts ...*runtimeapi.Mount) vmspec.Unresolved {
	t.Helper()
	c := container(nil)
	c.Mounts = mounts
	u, err := vmspec.FromCRI(pod(annotations), c)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestResolve(t *testing.T) {
	tools := imageAt("/tools", "sha256:1")
	facts := vmspec.Facts{Mode: vmspec.ModeRaw, Disks: map[string]vmspec.DiskFacts{"tools": {CD: true}}}
	type attached struct {
		Name, Target string
		Bus          vmspec.Bus
		CDROM        bool
		Mode         vmspec.Mode
	}
	for _, tt := range []struct {
		name        string
		annotations map[string]string
		want        []attached
	}{
		{"plain", nil, []attached{
			{"disk", "vda", vmspec.BusVirtio, false, vmspec.ModeRaw}, {"tools", "sda", vmspec.BusSATA, true, vmspec.ModeRaw},
		}},
		{"the pod's mode wins", map[string]string{vmspec.AnnotationDiskMode: "disk=file"}, []attached{
			{"disk", "vda", vmspec.BusVirtio, false, vmspec.ModeFile}, {"tools", "sda", vmspec.BusSATA, true, vmspec.ModeRaw},
		}},
		{"a VMI says what its disks are", vmi(`{"domain": {"devices": {"disks": [{"name": "tools", "disk": {"bus": "virtio"}}]}},
			"volumes": [{"name": "tools", "containerDisk": {}}, {"name": "rest", "emptyDisk": {"capacity": 1}}]}`), []attached{
			{"tools", "vda", vmspec.BusVirtio, false, vmspec.ModeRaw}, {"rest", "sda", vmspec.BusSATA, false, ""},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := fromCRI(t, tt.annotations, tools)
			spec := u.Resolve(facts)
			var got []attached
			for _, d := range spec.Disks {
				got = append(got, attached{d.Name, d.Target, d.Bus, d.CDROM, d.Mode})
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			again := fromCRI(t, tt.annotations, tools)
			if !u.Equal(again) {
				t.Error("a retry asks for another VM")
			}
			if diff := cmp.Diff(spec, again.Resolve(spec.Facts())); diff != "" {
				t.Errorf("resolved again from the record (-want +got):\n%s", diff)
			}
		})
	}
	if fromCRI(t, nil).Equal(fromCRI(t, nil, tools)) {
		t.Error("a VM with another disk is the same")
	}
}

// TestResolveBlockSize: the node's facts decide where the VMI asks for the volume's block size.
func TestResolveBlockSize(t *testing.T) {
	u := fromCRI(t, vmi(`{"domain": {"devices": {"disks": [{"name": "a", "disk": {"bus": "virtio"}, "blockSize": {"matchVolume": {}}},
			{"name": "b", "disk": {"bus": "virtio"}}]}},
		"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "a"}}, {"name": "b", "emptyDisk": {"capacity": 1}}]}`),
		&runtimeapi.Mount{ContainerPath: "/a", HostPath: "/srv/a"})
	size := vmspec.BlockSize{Logical: 512, Physical: 4096}
	spec := u.Resolve(vmspec.Facts{Disks: map[string]vmspec.DiskFacts{"a": {BlockSize: size}, "b": {BlockSize: size}}})
	size.MatchVolume = true
	if a, b := spec.Disks[0].BlockSize, spec.Disks[1].BlockSize; a != size || b != (vmspec.BlockSize{}) {
		t.Errorf("block sizes %+v and %+v", a, b)
	}
	if diff := cmp.Diff(spec, u.Resolve(spec.Facts())); diff != "" {
		t.Errorf("resolved again from the record (-want +got):\n%s", diff)
	}
}

// TestResolveAfterUnplug: the disks that are left keep their targets.
func TestResolveAfterUnplug(t *testing.T) {
	all := fromCRI(t, nil, imageAt("/a", "sha256:1"), imageAt("/b", "sha256:2")).Resolve(vmspec.Facts{})
	left := fromCRI(t, nil, imageAt("/b", "sha256:2")).Resolve(all.Facts())
	if got := left.Disks[1]; got.Name != "b" || got.Target != "vdc" {
		t.Errorf("disk %s is %s now", got.Name, got.Target)
	}
}

// TestBootSources: a VM boots from whatever it has.
func TestBootSources(t *testing.T) {
	for _, tt := range []struct {
		name, vmi string
		mounts    []*runtimeapi.Mount
		boots     string // the disk that is first; empty for none
		image     bool   // a disk of the container's image is needed
		files     bool   // other files of it are
	}{
		{name: "nothing", vmi: `{"domain": {"devices": {}}}`},
		{name: "own image", vmi: least(``, ``), boots: "root", image: true},
		{
			name:   "a mounted image",
			vmi:    `{"domain": {"devices": {}}, "volumes": [{"name": "e", "cloudInitNoCloud": {"userData": "x"}}, {"name": "m", "containerDisk": {}}]}`,
			mounts: []*runtimeapi.Mount{imageAt("/volumes/m", "sha256:1")}, boots: "m",
		},
		{name: "an empty disk", vmi: `{"domain": {"devices": {}}, "volumes": [{"name": "e", "emptyDisk": {"capacity": 1}}]}`, boots: "e"},
		{
			name: "a disk before a CD",
			vmi: `{"domain": {"devices": {"disks": [{"name": "cd", "cdrom": {}}, {"name": "e"}]}},
				"volumes": [{"name": "e", "emptyDisk": {"capacity": 1}}, {"name": "cd", "containerDisk": {}}]}`,
			mounts: []*runtimeapi.Mount{imageAt("/volumes/cd", "sha256:1")}, boots: "e",
		},
		{
			name:   "a CD alone",
			vmi:    `{"domain": {"devices": {"disks": [{"name": "cd", "cdrom": {}}]}}, "volumes": [{"name": "cd", "containerDisk": {}}]}`,
			mounts: []*runtimeapi.Mount{imageAt("/volumes/cd", "sha256:1")}, boots: "cd",
		},
		{name: "any disk by its order", vmi: `{"domain": {"devices": {"disks": [{"name": "root"}, {"name": "e", "bootOrder": 1}]}},
			"volumes": [{"name": "root", "containerDisk": {}}, {"name": "e", "emptyDisk": {"capacity": 1}}]}`, boots: "e", image: true},
		{
			name: "the network, and no disk", image: true,
			vmi: `{"domain": {"devices": {"disks": [{"name": "root"}], "interfaces": [{"name": "a", "bootOrder": 1}]}},
				"networks": [{"name": "a", "pod": {}}], "volumes": [{"name": "root", "containerDisk": {}}]}`,
		},
		{name: "a kernel", vmi: `{"domain": {"devices": {}, "firmware": {"kernelBoot": {"container": {"kernelPath": "/vmlinuz"}}}}}`, files: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := fromCRI(t, vmi(tt.vmi), tt.mounts...)
			if _, needed := u.ImageDisk(); needed != tt.image || u.ImageFiles() != tt.files {
				t.Errorf("needs of its image: disk %t, files %t", needed, u.ImageFiles())
			}
			boots := ""
			for _, d := range u.Resolve(vmspec.Facts{}).Disks {
				if d.BootOrder == 1 {
					boots = d.Name
				}
			}
			if boots != tt.boots {
				t.Errorf("it boots %q, want %q", boots, tt.boots)
			}
		})
	}
}

// TestImageDisk: a PVC that begins as the image's disk needs that disk too.
func TestImageDisk(t *testing.T) {
	u := fromCRI(t, map[string]string{vmspec.AnnotationDiskOrigin: "root=disk"},
		&runtimeapi.Mount{ContainerPath: "/claims/root", HostPath: "/srv/root"})
	if _, needed := u.ImageDisk(); !needed {
		t.Error("the origin's image is not needed")
	}
	u = fromCRI(t, vmi(`{"domain": {"devices": {}}, "volumes": [{"name": "r", "containerDisk": {"path": "/disk/a.img"}}]}`))
	if path, needed := u.ImageDisk(); path != "a.img" || !needed {
		t.Errorf("disk %q, needed %t", path, needed)
	}
}

func TestVolumeKinds(t *testing.T) {
	type row struct {
		source vmspec.Source
		field  string
	}
	seen := map[row]bool{}
	for _, k := range vmspec.VolumeKinds() {
		if of := k.Source.Kind(); of.Needs != k.Needs || of.Registry != k.Registry || of.Fixed != k.Fixed || of.Transfer != k.Transfer {
			t.Errorf("source %q is in two rows that differ", k.Source)
		}
		r := row{k.Source, k.Field}
		if seen[r] {
			t.Errorf("%+v is in two rows", r)
		}
		seen[r] = true
	}
	if vmspec.Source("other").Kind().Field != "" {
		t.Error("an unknown source has a kind")
	}
}
