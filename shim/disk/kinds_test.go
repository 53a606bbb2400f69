package disk

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/imageunpack/persist"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vhostmd"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/isofs"
)

// TestRows: the node has a row for each kind of volume, and no other.
func TestRows(t *testing.T) {
	var kinds []vmspec.Source
	for _, k := range vmspec.VolumeKinds() {
		if k.FilesOnly {
			continue
		}
		kinds = append(kinds, k.Source)
	}
	slices.Sort(kinds)
	kinds = slices.Compact(kinds) // a PVC has two fields
	if rows := slices.Sorted(maps.Keys(newNode(t).Maker.kinds)); !slices.Equal(rows, kinds) {
		t.Errorf("rows %q, kinds %q", rows, kinds)
	}
}

// TestWrittenFilesAreTheContainers: a checkpoint's disks replace the content of these files. None is on a user's volume, whichever
// kind of volume the disk is of.
func TestWrittenFilesAreTheContainers(t *testing.T) {
	n := newNode(t)
	r := record.Container{ID: "a", Disks: map[string]record.Disk{}}
	for source := range n.Maker.kinds {
		for _, block := range []bool{false, true} {
			name := fmt.Sprintf("%s-%t", source, block)
			r.Spec.Disks = append(r.Spec.Disks, vmspec.Disk{Name: name, Source: source, Block: block, Host: filepath.Join(n.dir, "volumes", name)})
		}
	}
	written := n.Attachments.Written(r)
	if len(written) == 0 {
		t.Error("no disk is written")
	}
	for name, path := range written {
		if !strings.HasPrefix(path, filepath.Join(n.dir, "containers", "a")+"/") {
			t.Errorf("disk %s is at %s", name, path)
		}
	}
}

// container makes a container with a disk, up to its record.
func (n *node) container(t *testing.T, id string, disks ...vmspec.Disk) record.Container {
	t.Helper()
	makeFolder(t, n.dir, "containers", id)
	own, err := n.images.Acquire(t.Context(), id, "guest", "")
	if err != nil {
		t.Fatal(err)
	}
	r := record.Container{ID: id, State: record.Created}
	r.Spec.Disks, r.Spec.Seed = disks, &vmspec.Seed{UserData: "x"}
	r.Domain = record.Domain{UUID: "8c2f2a35-1d0e-4f9c-9a54-2a3c4f0f7a10", UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	if r.Disks, err = n.Maker.Acquire(t.Context(), id, "shop", disks, &own); err != nil {
		t.Fatal(err)
	}
	return r
}

// volume makes a volume of the pod: a folder with a disk, or a device.
func (n *node) volume(t *testing.T, name string, block bool, content string) vmspec.Disk {
	t.Helper()
	d := vmspec.Disk{Name: name, Source: vmspec.SourcePVC, Block: block, Host: filepath.Join(n.dir, "volumes", name)}
	path := d.Host
	if !block {
		path = filepath.Join(d.Host, imageFile)
	}
	makeFolder(t, filepath.Dir(path))
	if content != "" || block {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// TestLife takes a disk of each kind through its life.
func TestLife(t *testing.T) {
	type kindCase struct {
		disk      vmspec.Disk
		reflink   bool
		takesTime bool
		groups    []string
		writable  string
		check     func(*testing.T, *node, domain.Disk)
	}
	registry := func(mode vmspec.Mode, readOnly bool) vmspec.Disk {
		return vmspec.Disk{Name: "d", Source: vmspec.SourceImage, Mode: mode, ReadOnly: readOnly}
	}
	overISCSI := func(t *testing.T, n *node, d domain.Disk) {
		if d.Layers[0].ISCSI == nil || d.ErrorPolicy != "stop" || len(n.daemon.served) != 1 || len(n.secrets) != 1 {
			t.Errorf("%+v, %d targets, %d secrets", d, len(n.daemon.served), len(n.secrets))
		}
	}
	cases := map[string]func(*testing.T, *node) kindCase{
		"overlay": func(*testing.T, *node) kindCase {
			return kindCase{disk: registry(vmspec.ModeFile, false), groups: []string{"d-base", "d-top"}, writable: "disk.qcow2"}
		},
		"raw": func(*testing.T, *node) kindCase {
			return kindCase{disk: registry(vmspec.ModeRaw, false), takesTime: true, groups: []string{"d-top"}, writable: "disk.raw"}
		},
		"CD": func(*testing.T, *node) kindCase {
			return kindCase{disk: registry(vmspec.ModeFile, true), groups: []string{"d-base"}}
		},
		"mounted image": func(*testing.T, *node) kindCase {
			d := registry(vmspec.ModeRaw, false)
			d.Source, d.Image = vmspec.SourceVolume, "cd"
			return kindCase{disk: d, takesTime: true, groups: []string{"d-top"}, writable: "disk-d.raw"}
		},
		"mounted image, overlay": func(*testing.T, *node) kindCase {
			d := registry(vmspec.ModeFile, false)
			d.Source, d.Image = vmspec.SourceVolume, "cd"
			return kindCase{disk: d, groups: []string{"d-base", "d-top"}, writable: "disk-d.qcow2"}
		},
		"iSCSI": func(*testing.T, *node) kindCase {
			return kindCase{disk: registry(vmspec.ModeISCSI, false), writable: "disk.qcow2", check: overISCSI}
		},
		"iSCSI, clone": func(*testing.T, *node) kindCase {
			return kindCase{disk: registry(vmspec.ModeISCSI, false), reflink: true, takesTime: true, writable: "disk.raw", check: overISCSI}
		},
		"empty": func(*testing.T, *node) kindCase {
			return kindCase{disk: vmspec.Disk{Name: "d", Source: vmspec.SourceEmpty, Size: 1 << 20}, groups: []string{"d-top"}, writable: "disk-d.qcow2"}
		},
		"seed": func(*testing.T, *node) kindCase {
			return kindCase{disk: vmspec.Disk{Name: "d", Source: vmspec.SourceSeed, ReadOnly: true}, groups: []string{"d-top"}}
		},
		"config drive": func(*testing.T, *node) kindCase {
			return kindCase{disk: vmspec.Disk{Name: "d", Source: vmspec.SourceConfigDrive, ReadOnly: true}, groups: []string{"d-top"}}
		},
		"ConfigMap": func(t *testing.T, _ *node) kindCase {
			d := vmspec.Disk{Name: "d", Source: vmspec.SourceConfigMap, Host: mountOf(t, map[string]string{"key": "value"}), Label: "cfgdata"}
			return kindCase{disk: d, groups: []string{"d-top"}, check: func(t *testing.T, _ *node, made domain.Disk) {
				if l := made.Layers[0]; !l.ReadOnly || l.Format != "raw" || isofs.Read(t, l.Path).Label != "cfgdata" {
					t.Errorf("%+v", made)
				}
			}}
		},
		"metrics": func(*testing.T, *node) kindCase {
			d := vmspec.Disk{Name: "d", Source: vmspec.SourceMetrics, ReadOnly: true}
			return kindCase{disk: d, groups: []string{"d-top"}, check: func(t *testing.T, _ *node, made domain.Disk) {
				info, err := os.Stat(made.Layers[0].Path)
				if err != nil || info.Size() != vhostmd.Size || !made.Layers[0].ReadOnly || made.Layers[0].Format != "raw" {
					t.Errorf("%+v, %v, %v", made, info, err)
				}
			}}
		},
		"empty drive": func(*testing.T, *node) kindCase {
			return kindCase{disk: vmspec.Disk{Name: "d", Source: vmspec.SourceDrive, CDROM: true, ReadOnly: true}}
		},
		"PVC": func(t *testing.T, n *node) kindCase {
			return kindCase{disk: n.volume(t, "d", false, "content"), groups: []string{"d-top"}}
		},
		"PVC of an image": func(t *testing.T, n *node) kindCase {
			d := n.volume(t, "d", false, "")
			d.Origin, d.Image = vmspec.OriginVolume, "cd"
			return kindCase{disk: d, takesTime: true, groups: []string{"d-top"}, check: func(t *testing.T, _ *node, _ domain.Disk) {
				if text, err := os.ReadFile(filepath.Join(d.Host, imageFile)); err != nil || string(text[:4]) != "a CD" {
					t.Errorf("the volume holds %.4q, %v", text, err)
				}
			}}
		},
		"block PVC": func(t *testing.T, n *node) kindCase {
			return kindCase{disk: n.volume(t, "d", true, "content"), check: func(t *testing.T, _ *node, d domain.Disk) {
				if _, err := os.Stat(d.Layers[0].Path); err != nil || !d.Layers[0].Block {
					t.Errorf("%+v, %v", d, err)
				}
			}}
		},
		"block PVC of the own image": func(t *testing.T, n *node) kindCase {
			d := n.volume(t, "d", true, "")
			d.Origin = vmspec.OriginOwn
			return kindCase{disk: d, takesTime: true}
		},
		"ephemeral": func(t *testing.T, n *node) kindCase {
			d := n.volume(t, "d", false, strings.Repeat("x", 700))
			d.Source = vmspec.SourceEphemeral
			return kindCase{disk: d, groups: []string{"d-base", "d-top"}, writable: "disk-d.qcow2", check: checkEphemeral}
		},
		"ephemeral block": func(t *testing.T, n *node) kindCase {
			d := n.volume(t, "d", true, strings.Repeat("x", 1024))
			d.Source = vmspec.SourceEphemeral
			return kindCase{disk: d, groups: []string{"d-top"}, writable: "disk-d.qcow2", check: checkEphemeral}
		},
		"host disk": func(t *testing.T, n *node) kindCase {
			d := n.volume(t, "d", false, "")
			d.Source, d.File, d.Size = vmspec.SourceHostDisk, "host.img", 3<<20
			return kindCase{disk: d, groups: []string{"d-top"}, check: func(t *testing.T, _ *node, made domain.Disk) {
				info, err := os.Stat(filepath.Join(d.Host, d.File))
				if err != nil || info.Size() != 3<<20 || made.Layers[0].Format != "raw" || filepath.Base(made.Layers[0].Path) != d.File {
					t.Errorf("%+v, %v, %v", made, info, err)
				}
			}}
		},
		"iSCSI PVC": func(*testing.T, *node) kindCase {
			return kindCase{disk: iscsiDisk(t), check: func(t *testing.T, n *node, d domain.Disk) {
				want := domain.ISCSI{
					Portal: netip.MustParseAddrPort("10.0.0.2:3260"), Target: "iqn.2026-11.com.example:disk", LUN: 1, User: "me",
					Secret: d.Layers[0].ISCSI.Secret,
				}
				if got := d.Layers[0]; *got.ISCSI != want || got.Format != "raw" || d.ErrorPolicy != "stop" || len(n.secrets) != 1 || n.secrets[want.Secret] != "hunter2" {
					t.Errorf("%+v, %v", got.ISCSI, n.secrets)
				}
			}}
		},
		"RBD PVC": func(*testing.T, *node) kindCase {
			return kindCase{disk: rbdDisk(t), check: func(t *testing.T, n *node, d domain.Disk) {
				got := d.Layers[0].RBD
				if len(got.Monitors) != 2 || got.User != "nodevirt" || n.secrets[got.Secret] != "decoded" {
					t.Errorf("%+v, %v", got, n.secrets)
				}
				if text, err := os.ReadFile(got.Config); err != nil || !strings.Contains(string(text), "client_mount_timeout = 5") {
					t.Errorf("%s, %v", text, err)
				}
			}}
		},
		"import": func(t *testing.T, n *node) kindCase {
			if err := n.Imports.Add(theImport("data")); err != nil {
				t.Fatal(err)
			}
			return kindCase{disk: vmspec.Disk{Name: "d", Source: vmspec.SourceImport, Import: "data"}, check: func(t *testing.T, n *node, d domain.Disk) {
				if d.Layers[0].ISCSI == nil || len(n.secrets) != 1 {
					t.Errorf("%+v, %d secrets", d, len(n.secrets))
				}
			}}
		},
	}
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			tt := prepare(t, n)
			n.expander.reflink = tt.reflink
			r := n.container(t, "c1", tt.disk)
			if got := n.Maker.TakeTime(r); got != tt.takesTime {
				t.Errorf("it takes time: %t", got)
			}
			if err := n.Maker.Create(t.Context(), r, func(string, expand.Progress) {}); err != nil {
				t.Fatal(err)
			}
			files, err := n.Attachments.Attach(t.Context(), r)
			defer closeAll(files)
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, tt.groups) {
				t.Errorf("FD groups %q, want %q", got, tt.groups)
			}
			var writable []string
			if tt.writable != "" {
				writable = []string{filepath.Join(n.dir, "containers", "c1", tt.writable)}
			}
			if got := n.Attachments.Writable(r); !slices.Equal(got, writable) {
				t.Errorf("the guest writes to %q", got)
			}
			described := n.Attachments.Describe(r)
			if len(described) != 1 || len(described[0].Layers) == 0 && tt.disk.Source != vmspec.SourceDrive {
				t.Fatalf("it is described as %+v", described)
			}
			// QEMU reaches the portals of its disks alone.
			if want := reachable(described); !slices.Equal(n.reach[r.Domain.UID], want) || byISCSI(described[0]) && len(want) != 1 {
				t.Errorf("the VM reaches %v; want %v", n.reach, want)
			}
			if tt.check != nil {
				tt.check(t, n, described[0])
			}
			clear(n.shown) // the processes have ended
			clear(n.daemon.served)
			if err := n.Attachments.Restore(t.Context(), r); err != nil {
				t.Error(err)
			}
			if tt.check != nil {
				tt.check(t, n, described[0])
			}
			again := newNodeIn(t, n.dir) // the shim that runs next
			r.State = record.Running
			if err := again.Maker.Recover(r); err != nil {
				t.Error(err)
			}
			if err := again.Keeper.LimitReach(t.Context(), []record.Container{r}, false); err != nil || !slices.Equal(again.reach[r.Domain.UID], n.reach[r.Domain.UID]) {
				t.Errorf("with the next shim the VM reaches %v, %v", again.reach, err)
			}
			for range 2 { // undoing twice is no error
				err := errors.Join(n.Attachments.Detach(t.Context(), r), n.Maker.Remove(t.Context(), r), n.Maker.Release(t.Context(), r.ID, r.Spec.Disks))
				if err != nil {
					t.Error(err)
				}
			}
			nodes, err := os.ReadDir(filepath.Join(n.dir, "dev"))
			if err != nil || len(nodes)+len(n.secrets)+len(n.daemon.served)+len(n.shown)+len(n.images.held)+len(n.reach) > 0 {
				t.Errorf("left: %v, %v, %v, %v, %v, %v, %v", n.reach, nodes, n.secrets, n.daemon.served, n.shown, n.images.held, err)
			}
		})
	}
}

func byISCSI(d domain.Disk) bool { return len(d.Layers) > 0 && d.Layers[0].ISCSI != nil }

func closeAll(files map[string][]*os.File) {
	for _, group := range files {
		for _, f := range group {
			f.Close()
		}
	}
}

func theImport(name string) Import {
	return Import{Name: name, Namespace: "shop", Connection: Connection{
		Portal: "10.0.0.1:3260", Target: "iqn.2026-11.io.nodevirt:a", LUN: 1,
		Initiator: "iqn.2026-11.io.nodevirt:by.b", User: "user01234567", Password: "0123456789abcdef",
	}}
}

// TestOneVMAtATime: a device and an import are one VM's, on this node.
func TestOneVMAtATime(t *testing.T) {
	n := newNode(t)
	if err := n.Imports.Add(theImport("data")); err != nil {
		t.Fatal(err)
	}
	for _, d := range []vmspec.Disk{n.volume(t, "block", true, "x"), {Name: "i", Source: vmspec.SourceImport, Import: "data"}} {
		first, second := n.container(t, "c1", d), n.container(t, "c2", d)
		none := func(string, expand.Progress) {}
		if err := errors.Join(n.Maker.Create(t.Context(), first, none), n.Maker.Create(t.Context(), second, none)); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Attachments.Attach(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Attachments.Attach(t.Context(), second); !errors.Is(err, ErrInUse) {
			t.Errorf("%s: the second start: %v", d.Name, err)
		}
		if err := n.Maker.Create(t.Context(), second, none); !errors.Is(err, ErrInUse) {
			t.Errorf("%s: a second container: %v", d.Name, err)
		}
		if err := n.Attachments.Detach(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Attachments.Attach(t.Context(), second); err != nil {
			t.Errorf("%s: after the first: %v", d.Name, err)
		}
	}
}

// TestReaders: VMs that only read a volume share it, and none of them shares it with a VM that writes it.
func TestReaders(t *testing.T) {
	n := newNode(t)
	none := func(string, expand.Progress) {}
	for _, block := range []bool{true, false} {
		writes := n.volume(t, fmt.Sprint("d", block), block, "content")
		reads := writes
		reads.ReadOnly = true
		first, second, writer := n.container(t, "c1", reads), n.container(t, "c2", reads), n.container(t, "c3", writes)
		for _, r := range []record.Container{first, second} {
			if err := n.Maker.Create(t.Context(), r, none); err != nil {
				t.Fatal(err)
			}
			files, err := n.Attachments.Attach(t.Context(), r)
			defer closeAll(files)
			if err != nil {
				t.Errorf("block %t: a reader: %v", block, err)
			}
			for _, f := range files["dfalse-top"] {
				if _, err := f.Write([]byte("x")); err == nil {
					t.Error("a reader can write")
				}
			}
		}
		if !block {
			continue // QEMU locks the file
		}
		if _, err := n.Attachments.Attach(t.Context(), writer); !errors.Is(err, ErrInUse) {
			t.Errorf("a writer beside readers: %v", err)
		}
	}
}

// TestLockedVolume: a volume that another process writes is refused, at each step.
func TestLockedVolume(t *testing.T) {
	n := newNode(t)
	d := n.volume(t, "d", false, "content")
	r := n.container(t, "c1", d)
	f, err := os.OpenFile(filepath.Join(d.Host, imageFile), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unlock, err := persist.Lock(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Maker.Create(t.Context(), r, nil); !errors.Is(err, persist.ErrInUse) {
		t.Errorf("create: %v", err)
	}
	files, err := n.Attachments.Attach(t.Context(), r)
	closeAll(files)
	if !errors.Is(err, persist.ErrInUse) {
		t.Errorf("attach: %v", err)
	}
	reader := d
	reader.ReadOnly = true
	if err := n.Maker.Create(t.Context(), n.container(t, "c2", reader), nil); !errors.Is(err, persist.ErrInUse) {
		t.Errorf("create a reader: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	if err := n.Maker.Create(t.Context(), r, nil); err != nil {
		t.Error(err)
	}
}

// TestBadContent: what can't be acquired or made is refused, and leaves no image held.
func TestBadContent(t *testing.T) {
	n := newNode(t)
	image := func(name string) vmspec.Disk {
		return vmspec.Disk{Name: "d", Source: vmspec.SourceVolume, Image: name}
	}
	for _, tt := range []struct {
		disk vmspec.Disk
		want error
	}{
		{image("none"), imageunpack.ErrNoDisk},
		{image("missing"), os.ErrNotExist},
		{vmspec.Disk{Name: "d", Source: vmspec.SourceImport, Import: "missing"}, ErrUnknown},
		{vmspec.Disk{Name: "d", Source: vmspec.SourceImport, Import: "../x"}, ErrName},
		{vmspec.Disk{Name: "d", Source: vmspec.SourceImage}, errNoImage},
	} {
		if _, err := n.Maker.Acquire(t.Context(), "c1", "shop", []vmspec.Disk{tt.disk}, nil); !errors.Is(err, tt.want) {
			t.Errorf("%+v: %v, want %v", tt.disk, err, tt.want)
		}
	}
	if err := n.Imports.Add(theImport("data")); err != nil {
		t.Fatal(err)
	}
	of := []vmspec.Disk{{Name: "d", Source: vmspec.SourceImport, Import: "data"}}
	if _, err := n.Maker.Acquire(t.Context(), "c1", "other", of, nil); !errors.Is(err, ErrUnknown) {
		t.Errorf("an import of another namespace: %v", err)
	}
	folder, file := n.volume(t, "nofile", false, ""), n.volume(t, "folder", false, "x")
	file.Host = filepath.Join(file.Host, imageFile)
	dir := n.volume(t, "dir", false, "")
	makeFolder(t, dir.Host, imageFile)
	gone := vmspec.Disk{Name: "gone", Source: vmspec.SourcePVC, Block: true, Host: "/missing"}
	for _, d := range []vmspec.Disk{folder, file, dir, gone} {
		r := n.container(t, "c1", d)
		if err := n.Maker.Create(t.Context(), r, nil); !errors.Is(err, ErrVolume) {
			t.Errorf("create %s: %v", d.Name, err)
		}
		if _, err := n.Attachments.Attach(t.Context(), r); !errors.Is(err, ErrVolume) {
			t.Errorf("attach %s: %v", d.Name, err)
		}
	}
	r := n.container(t, "c1", gone)
	r.State = record.Running
	if err := n.Maker.Recover(r); !errors.Is(err, ErrVolume) {
		t.Errorf("recover: %v", err)
	}
	r.State = record.Exited
	if err := n.Maker.Recover(r); err != nil {
		t.Errorf("recover a VM that ended: %v", err)
	}
}

// TestVolumeWithoutRoom: an image that does not fit its volume is refused before anything is written.
func TestVolumeWithoutRoom(t *testing.T) {
	n := newNode(t)
	for _, change := range []func(*imageunpack.Disk){
		func(d *imageunpack.Disk) { d.VirtualSize = 1 << 60 }, func(d *imageunpack.Disk) { d.Content = 1 << 60 },
	} {
		d := n.volume(t, "d", false, "")
		d.Origin = vmspec.OriginOwn
		r := n.container(t, "c1", d)
		change(r.Disks["d"].Image)
		if err := n.Maker.Create(t.Context(), r, nil); err == nil {
			t.Error("it is made")
		}
		if _, err := os.Stat(filepath.Join(d.Host, imageFile)); err == nil {
			t.Error("a file was begun")
		}
	}
	d := n.volume(t, "small", true, "x")
	d.Origin = vmspec.OriginOwn
	if err := n.Maker.Create(t.Context(), n.container(t, "c1", d), func(string, expand.Progress) {}); err != nil && !errors.Is(err, ErrVolume) {
		t.Error(err)
	}
}

func TestFacts(t *testing.T) {
	facts := Facts(map[string]record.Disk{"cd": {Image: &imageunpack.Disk{CD: true}}, "disk": {Image: &imageunpack.Disk{}}, "other": {}})
	if !facts["cd"].CD || facts["disk"].CD || facts["other"].CD {
		t.Errorf("%+v", facts)
	}
}

// TestDevices: the kernel's devices and the fake refuse the same.
func TestDevices(t *testing.T) {
	for name, d := range map[string]devices{"kernel": kernelDevices{}, "fake": fakeDevices{dir: t.TempDir()}} {
		for _, path := range []string{"/missing", t.TempDir()} {
			if _, _, err := d.open(path, false); !errors.Is(err, ErrVolume) {
				t.Errorf("%s: %s: %v", name, path, err)
			}
		}
		if path := d.path("nodevirt-x"); filepath.Base(path) != "nodevirt-x" {
			t.Errorf("%s: a node is %s", name, path)
		}
		if err := d.makeNode(filepath.Join(t.TempDir(), "missing", "x"), 1, 0, 0); err == nil {
			t.Errorf("%s: a node is made in no folder", name)
		}
		if nodes, err := d.nodes("nodevirt-of-no-vm-"); err != nil || len(nodes) > 0 {
			t.Errorf("%s: nodes %v, %v", name, nodes, err)
		}
	}
	if _, _, err := (kernelDevices{}).open(filepath.Join(t.TempDir(), ".."), true); !errors.Is(err, ErrVolume) {
		t.Errorf("a folder is a device: %v", err)
	}
}
