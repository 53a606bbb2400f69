package imageunpack_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/nodevirt/nodevirt/imageunpack"
)

const mib = 1 << 20

func TestAcquire(t *testing.T) {
	raw := pattern(mib)
	qcow2 := qcow2File(t, raw)
	for _, test := range []struct {
		name   string
		layers []layer
		path   string
		want   string
		format imageunpack.Format
		size   int
	}{
		{"file", []layer{{file("disk", qcow2)}}, "", "/disk", imageunpack.QCOW2, len(qcow2)},
		{"file by its path", []layer{{file("disk", qcow2)}}, "/disk", "/disk", imageunpack.QCOW2, len(qcow2)},
		{"folder", []layer{{dir("disk"), file("disk/a.img", raw)}}, "", "/disk/a.img", imageunpack.Raw, mib},
		{"one of two", []layer{{file("disk/a", raw), file("disk/b", qcow2)}},
			"b", "/disk/b", imageunpack.QCOW2, len(qcow2)},
		{"one of two, absolute", []layer{{file("disk/a", raw), file("disk/b", qcow2)}},
			"/disk/../disk/a", "/disk/a", imageunpack.Raw, mib},
		{"deeper", []layer{{file("disk/x/a", raw)}}, "x/a", "/disk/x/a", imageunpack.Raw, mib},
		{"link inside", []layer{{file("data/a", raw), link("disk", "data")}}, "", "/disk/a", imageunpack.Raw, mib},
		{"link up and inside", []layer{{file("data/a", raw), dir("disk"), link("disk/l", "../data/a")}},
			"l", "/disk/l", imageunpack.Raw, mib},
		{"layers", []layer{{file("disk/a", raw), file("disk/b", raw)}, {file("disk/.wh.a", nil)}, {file("etc/x", nil)}},
			"", "/disk/b", imageunpack.Raw, mib},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newNode(t)
			ref, id := n.load(test.layers...)
			got, err := n.Acquire(n.ctx, "owner", ref, test.path)
			if err != nil {
				t.Fatal(err)
			}
			want := imageunpack.Disk{
				Owner: "owner", Image: ref, ImageID: id, Path: test.want,
				Architecture: "amd64", Format: test.format, VirtualSize: mib, Content: mib, Size: int64(test.size),
				Snapshotter: snapshotter, Snapshot: "nodevirt-owner", Lease: "nodevirt-owner",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{"lease nodevirt-owner", "View nodevirt-owner"}, n.held()); diff != "" {
				t.Error(diff)
			}
			n.check(n.Release(n.ctx, "owner"))
			n.wantNothing("after Release")
		})
	}
}

// TestAcquireLazy: to a snapshotter that knows nothing of chunks, a lazy image is like any other.
func TestAcquireLazy(t *testing.T) {
	content := arranged(t, qcow2File(t, pattern(3*mib)))
	img := lazyImage(t, content)
	n := newNode(t)
	const ref = "registry.test/lazy:v1"
	n.loadImage(ref, img)
	d := n.acquire("owner", ref, "")
	if d.Path != "/disk/disk.qcow2" || d.Format != imageunpack.QCOW2 || d.Size != int64(len(content)) {
		t.Errorf("got %+v", d)
	}
	n.wantContent(d, d.Path, content)
	n.check(n.Release(n.ctx, "owner"))
	n.wantNothing("after Release")
}

// TestAcquireWithoutLayers: another snapshotter fetches the layers while they are read.
func TestAcquireWithoutLayers(t *testing.T) {
	n := newNode(t)
	ref, _ := n.load(layer{file("disk", pattern(mib))})
	img, err := n.client.GetImage(n.ctx, ref)
	n.check(err)
	manifest, err := images.Manifest(n.ctx, img.ContentStore(), img.Target(), img.Platform())
	n.check(err)
	n.check(n.client.ContentStore().Delete(n.ctx, manifest.Layers[0].Digest))
	_, err = n.Acquire(n.ctx, "owner", ref, "")
	if !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "pull it again") || !strings.Contains(err.Error(), ref) {
		t.Errorf("got error %v", err)
	}
	n.wantNothing("after a refusal")
}

// TestOutsideDisk: a disk can be anywhere in its image, with or without a /disk beside it.
func TestOutsideDisk(t *testing.T) {
	n := newNode(t)
	for name, more := range map[string][]layer{"alone": nil, "beside": {{file("disk", pattern(2*mib))}}} {
		ref, _ := n.load(append(more, layer{file("custom/a.img", pattern(mib))})...)
		if d := n.acquire(name, ref, "/custom/a.img"); d.Path != "/custom/a.img" || d.Size != mib {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func TestCDs(t *testing.T) {
	iso := pattern(mib)
	copy(iso[32768:], "\x01CD001\x01")
	n := newNode(t)
	for name, want := range map[string]bool{"cd": true, "disk": false} {
		content := pattern(mib)
		if want {
			content = iso
		}
		ref, _ := n.load(layer{file("disk", content)})
		if d := n.acquire(name, ref, ""); d.CD != want || d.Format != imageunpack.Raw {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

func TestAcquireRefuses(t *testing.T) {
	raw := pattern(mib)
	qcow2 := qcow2File(t, raw)
	for _, test := range []struct {
		name   string
		layers []layer
		path   string
		want   error
		says   string
	}{
		{"no disk", []layer{{file("bin/sh", raw)}}, "", imageunpack.ErrNoDisk, ""},
		{"no disk, path", []layer{{file("bin/sh", raw)}}, "a", imageunpack.ErrNoDisk, ""},
		{"removed disk", []layer{{file("disk", raw)}, {file(".wh.disk", nil)}}, "", imageunpack.ErrNoDisk, ""},
		{"empty folder", []layer{{dir("disk")}}, "", imageunpack.ErrNoDisk, "empty folder"},
		{"two disks", []layer{{file("disk/a", raw), file("disk/b", raw)}}, "", imageunpack.ErrAmbiguous,
			`"a", "b"; name one with containerDisk.path in the nodevirt.io/vmi annotation, or keep only one`},
		{"no file", []layer{{dir("disk/sub")}}, "", imageunpack.ErrAmbiguous, `only "sub"`},
		{"wrong path", []layer{{file("disk/a", raw)}}, "b", imageunpack.ErrNotFound, `/disk holds "a"`},
		{"path in a file", []layer{{file("disk", raw)}}, "b", imageunpack.ErrNotFound, "name no path"},
		{"path below a pipe", []layer{{fifo("disk")}}, "b", imageunpack.ErrNotFound, "name no path"},
		{"path to a folder", []layer{{dir("disk/sub")}}, "sub", imageunpack.ErrNotRegular, "folder"},
		{"path above", []layer{{file("disk/a", raw)}}, "../etc/passwd", imageunpack.ErrOutside, "name a file there"},
		{"no file at an absolute path", []layer{{file("disk", raw)}}, "/disk2", imageunpack.ErrNotFound, "/disk2"},
		{"folder at an absolute path", []layer{{dir("disks")}}, "/disks", imageunpack.ErrNotRegular, "folder"},
		{"link above at an absolute path", []layer{{link("disks", "../etc/passwd")}}, "/disks", imageunpack.ErrUnusable, ""},
		{"absolute link", []layer{{link("disk", "/etc/passwd")}}, "", imageunpack.ErrOutside, "make it relative"},
		{"link above", []layer{{dir("disk"), link("disk/a", "../../../../../../etc/passwd")}},
			"a", imageunpack.ErrOutside, `"/disk/a"`},
		{"folder's link above", []layer{{link("disk", "../..")}}, "etc/passwd", imageunpack.ErrOutside, ""},
		{"link to nowhere", []layer{{link("disk", "nowhere")}}, "", imageunpack.ErrNotFound, ""},
		{"link to itself", []layer{{link("disk", "disk")}}, "", imageunpack.ErrUnusable, ""},
		{"not UTF-8", []layer{{file("disk/a\xff.img", raw)}}, "", imageunpack.ErrName, `"/disk/a\xff.img"`},
		{"not UTF-8, by path", []layer{{file("disk/a\xff.img", raw)}}, "a\xff.img", imageunpack.ErrName, `"/disk/a\xff.img"`},
		{"line break", []layer{{file("disk/a\nb", raw)}}, "", imageunpack.ErrName, `"/disk/a\nb"`},
		{"terminal's escape", []layer{{file("disk/\x1b[2J", raw)}}, "", imageunpack.ErrName, "rename the file"},
		{"another direction", []layer{{file("disk/\u202egmi.a", raw)}}, "", imageunpack.ErrName, `\u202e`},
		{"pipe", []layer{{fifo("disk")}}, "", imageunpack.ErrNotRegular, "named pipe"},
		{"pipe by path", []layer{{dir("disk"), fifo("disk/p")}}, "p", imageunpack.ErrNotRegular, "named pipe"},
		{"device", []layer{{device("disk")}}, "", imageunpack.ErrNotRegular, "device"},
		{"empty", []layer{{file("disk", nil)}}, "", imageunpack.ErrEmpty, "build the image again from a file with content; if the image worked before, the node's copy of it is damaged"},
		{"truncated", []layer{{file("disk/a", qcow2[:len(qcow2)-1])}}, "", imageunpack.ErrTruncated, "crictl rmi"},
		{"odd size", []layer{{file("disk/a", raw[:1000])}}, "", imageunpack.ErrSize, "multiple of 512"},
		{"foreign", []layer{{file("disk/a", append([]byte("KDMV"), raw...))}}, "",
			imageunpack.ErrForeignFormat, "vmdk; convert it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newNode(t)
			ref, _ := n.load(test.layers...)
			_, err := n.Acquire(n.ctx, "owner", ref, test.path)
			if !errors.Is(err, test.want) {
				t.Fatalf("got error %v, want %v", err, test.want)
			}
			if !errors.Is(err, imageunpack.ErrNoDisk) && !errors.Is(err, imageunpack.ErrUnusable) {
				t.Errorf("%v is not ErrUnusable", err)
			}
			if !strings.Contains(err.Error(), ref) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %q does not name %s, or doesn't say %q", err, ref, test.says)
			}
			n.wantNothing("after a refusal")
		})
	}
}

func TestAcquireByEveryName(t *testing.T) {
	n := newNode(t)
	id := n.loadAs("docker.io/library/fedora:latest", layer{file("disk", pattern(mib))})
	img, err := n.client.ImageService().Get(n.ctx, "docker.io/library/fedora:latest")
	n.check(err)
	_, err = n.client.ImageService().Create(n.ctx, images.Image{Name: id, Target: img.Target})
	n.check(err) // as containerd's CRI plug-in does
	t.Cleanup(func() { n.forget(id) })
	for _, name := range []string{
		"docker.io/library/fedora:latest", "fedora", "fedora:latest", "docker.io/fedora",
		id, strings.TrimPrefix(id, "sha256:"), strings.TrimPrefix(id, "sha256:")[:12],
	} {
		if got := n.acquire("owner", name, ""); got.ImageID != id {
			t.Errorf("%s is %s, want %s", name, got.ImageID, id)
		}
	}
	n.check(n.Release(n.ctx, "owner"))
	for _, name := range []string{"fedora:41", "sha256:" + strings.Repeat("0", 64), "000000", ""} {
		_, err := n.Acquire(n.ctx, "owner", name, "")
		if !errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "pull it first") {
			t.Errorf("image %q: got error %v", name, err)
		}
	}
	n.wantNothing("after unknown images")
}

// TestAcquireAgain goes through the states that a crash can leave.
func TestAcquireAgain(t *testing.T) {
	n := newNode(t)
	ref, _ := n.load(layer{file("disk", pattern(mib))})
	first := n.acquire("owner", ref, "")
	again := func(when string) {
		t.Helper()
		if diff := cmp.Diff(first, n.acquire("owner", ref, "")); diff != "" {
			t.Errorf("%s: %s", when, diff)
		}
		if diff := cmp.Diff([]string{"lease nodevirt-owner", "View nodevirt-owner"}, n.held()); diff != "" {
			t.Errorf("%s: %s", when, diff)
		}
	}
	again("lease and view are there")
	n.check(n.client.SnapshotService(snapshotter).Remove(n.ctx, first.Snapshot))
	again("only the lease is there")

	// A new lease has to take the old view, or garbage collection would.
	again("before the lease goes")
	lease := leases.Lease{ID: first.Lease}
	resources, err := n.client.LeasesService().ListResources(n.ctx, lease)
	n.check(err)
	if len(resources) == 0 {
		t.Fatal("the lease holds nothing")
	}
	for _, r := range resources {
		n.check(n.client.LeasesService().DeleteResource(n.ctx, lease, r))
	}
	again("the lease holds nothing")
	resources, err = n.client.LeasesService().ListResources(n.ctx, lease)
	n.check(err)
	if diff := cmp.Diff([]leases.Resource{{ID: first.Snapshot, Type: "snapshots/overlayfs"}}, resources); diff != "" {
		t.Error(diff)
	}

	// A failing call leaves what an earlier one made.
	if _, err := n.Acquire(n.ctx, "owner", ref, "nowhere"); !errors.Is(err, imageunpack.ErrNotFound) {
		t.Fatal(err)
	}
	again("after a failing call")

	// The tag moved.
	other := n.loadAs(ref, layer{file("disk/b", pattern(2*mib))})
	if got := n.acquire("owner", ref, ""); got.ImageID != other || got.VirtualSize != 2*mib {
		t.Errorf("after the tag moved: %+v", got)
	}
}

func TestHeldImageSurvivesDeletion(t *testing.T) {
	n := newNode(t)
	content := pattern(mib)
	ref, _ := n.load(layer{file("disk", content)}, layer{file("x", nil)})
	d := n.acquire("owner", ref, "")
	n.check(n.client.ImageService().Delete(n.ctx, ref, images.SynchronousDelete()))
	n.wantContent(d, "/disk", content)
	n.check(n.Release(n.ctx, "owner"))
	n.wantNothing("after Release")
}

func TestReleaseAndOwners(t *testing.T) {
	n := newNode(t)
	ref, _ := n.load(layer{file("disk", pattern(mib))})
	n.acquire("a", ref, "")
	d := n.acquire("b", ref, "")
	_, err := n.client.LeasesService().Create(n.ctx, leases.WithID("nodevirt-not-ours"))
	n.check(err)
	owners, err := n.Owners(n.ctx)
	n.check(err)
	if diff := cmp.Diff([]string{"a", "b"}, owners); diff != "" {
		t.Error(diff)
	}
	n.check(n.client.LeasesService().Delete(n.ctx, leases.Lease{ID: "nodevirt-not-ours"}))

	n.check(n.Release(n.ctx, "a"))
	n.check(n.Release(n.ctx, "a"))
	n.check(n.Release(n.ctx, "never there"))
	n.check(n.client.LeasesService().Delete(n.ctx, leases.Lease{ID: d.Lease}, leases.SynchronousDelete))
	n.wantNothing("after containerd lost the lease")
	n.check(n.Release(n.ctx, "b"))
	if _, err := n.Open(n.ctx, d, d.Path); !errdefs.IsNotFound(err) {
		t.Errorf("opened a released disk: %v", err)
	}
}

// TestAcquireInterrupted stops Acquire at many points.
func TestAcquireInterrupted(t *testing.T) {
	n := newNode(t)
	ref, _ := n.load(layer{file("disk", pattern(mib))}, layer{file("x", nil)})
	failed := 0
	for limit := time.Duration(0); ; limit += 300 * time.Microsecond {
		ctx, cancel := context.WithTimeout(n.ctx, limit)
		_, err := n.Acquire(ctx, "owner", ref, "")
		cancel()
		if err == nil {
			break
		}
		failed++
		n.wantNothing(fmt.Sprintf("after %v", limit))
	}
	if failed == 0 {
		t.Error("Acquire was never interrupted")
	}
	n.check(n.Release(n.ctx, "owner"))
	n.wantNothing("after Release")
}

// TestTogether starts machines from one image at the same time, which is not unpacked yet.
func TestTogether(t *testing.T) {
	n := newNode(t)
	content := pattern(mib)
	ref, _ := n.load(layer{file("disk", content)}, layer{file("x", nil)})
	dir := t.TempDir()
	var all errgroup.Group
	for i := range 8 {
		all.Go(func() error {
			owner := fmt.Sprint("owner", i)
			d, err := n.Acquire(n.ctx, owner, ref, "")
			if err != nil {
				return err
			}
			if err := n.Overlay(d, filepath.Join(dir, owner)); err != nil {
				return err
			}
			f, err := n.Open(n.ctx, d, d.Path)
			if err != nil {
				return err
			}
			if err := f.Close(); err != nil {
				return err
			}
			return n.Release(n.ctx, owner)
		})
	}
	n.check(all.Wait())
	n.wantNothing("after all")
}
