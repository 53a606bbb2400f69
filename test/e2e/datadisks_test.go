package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
)

// dataDisk is a file of a size that repeats a word, in the test's folder.
func dataDisk(t *testing.T, name, word string, size int) (path, digest string) {
	t.Helper()
	content := bytes.Repeat([]byte(word), size/len(word)+1)[:size]
	path = filepath.Join(t.TempDir(), name)
	assert.NilError(t, os.WriteFile(path, content, 0o644))
	return path, digestOf(content)
}

func digestOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// pushed pushes and pulls a registry disk, and returns its image's id.
func pushed(t *testing.T, name, path string, o images.DiskOptions) (id string) {
	t.Helper()
	ref, err := pushDisk(t.Context(), name, path, o)
	assert.NilError(t, err)
	reply, err := suite.images.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	assert.NilError(t, err)
	return reply.ImageRef
}

// mounts adds image volumes, path and image in turn, as the kubelet does.
func mounts(pairs ...string) func(*runtimeapi.ContainerConfig) {
	return func(c *runtimeapi.ContainerConfig) {
		for pair := range slices.Chunk(pairs, 2) {
			c.Mounts = append(c.Mounts, &runtimeapi.Mount{
				ContainerPath: pair[0], Readonly: true, Image: &runtimeapi.ImageSpec{Image: pair[1]},
			})
		}
	}
}

// disk asks the guest for the digest of a disk.
func (c *container) disk(name string) string {
	c.t.Helper()
	return strings.TrimSpace(c.page("/cgi-bin/block?" + name))
}

// write writes over the beginning of a guest's disk and returns the digest of it all.
func (c *container) write(name, text string) string {
	c.t.Helper()
	c.post("/cgi-bin/block?"+name, text)
	return c.disk(name)
}

// TestDataDisks has a guest look at disks of every kind, on the buses that it has drivers for.
func TestDataDisks(t *testing.T) {
	t.Parallel()
	raw, rawDigest := dataDisk(t, "raw.img", "raw ", 3*mebibyte)
	plain, qcowDigest := dataDisk(t, "plain.img", "qcow2 ", 5*mebibyte)
	qcow2 := filepath.Join(t.TempDir(), "data.qcow2")
	inNode(t, "qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-c", plain, qcow2)
	cd := filepath.Join(t.TempDir(), "cd.iso")
	assert.NilError(t, guest.WriteCD(cd, guest.BootSector("from the CD", guest.Halt)))
	cdContent, err := os.ReadFile(cd)
	assert.NilError(t, err)
	rawID := pushed(t, "data-raw:1", raw, images.DiskOptions{AsFolder: true, Name: "b.img",
		Above: [][]images.File{{{Name: "disk/other.img", From: plain}}}})
	qcowID := pushed(t, "data-qcow2:1", qcow2, images.DiskOptions{})
	cdID := pushed(t, "data-cd:1", cd, images.DiskOptions{AsFolder: true})
	before := snapshotFiles(t)

	p := vmPod(t, annotated(map[string]string{"nodevirt.io/vmi": `{
		"domain": {"devices": {"disks": [
			{"name": "qcow2", "disk": {"bus": "virtio"}, "serial": "Q-1", "cache": "none", "io": "native", "errorPolicy": "report"},
			{"name": "root", "disk": {"bus": "virtio"}, "bootOrder": 1, "cache": "writethrough", "io": "threads"},
			{"name": "raw", "disk": {"bus": "scsi"}, "serial": "raw-disk-of-a-long-name"},
			{"name": "fixed", "disk": {"bus": "scsi", "readonly": true}, "errorPolicy": "ignore"},
			{"name": "cd", "cdrom": {"bus": "scsi"}},
			{"name": "scratch", "disk": {"bus": "virtio"}, "serial": "S-1", "cache": "writeback"},
			{"name": "sata", "disk": {}}
		]}},
		"volumes": [
			{"name": "root", "containerDisk": {"image": "r"}}, {"name": "qcow2", "containerDisk": {"image": "q"}},
			{"name": "raw", "containerDisk": {"image": "w", "path": "/disk/b.img"}},
			{"name": "fixed", "containerDisk": {"image": "f", "path": "/disk/other.img"}},
			{"name": "cd", "containerDisk": {"image": "c"}}, {"name": "sata", "containerDisk": {"image": "s"}},
			{"name": "scratch", "emptyDisk": {"capacity": "7Mi"}}
		]}`}))
	vm := p.vm(suite.tiny, mounts("/v/qcow2", qcowID, "/v/raw", rawID, "/v/fixed", rawID, "/v/cd", cdID, "/v/sata", qcowID)).start().up()

	got := vm.guest().Disks
	slices.SortFunc(got, func(a, b guestDisk) int { return strings.Compare(a.Name, b.Name) })
	want := []guestDisk{ // SCSI disks' names are counted in the order in which they are found
		{Name: "sda", Size: 3 * mebibyte, Serial: "raw-disk-of-a-long-name"},
		{Name: "sdb", Size: 5 * mebibyte, ReadOnly: true},
		{Name: "sr0", Size: int64(len(cdContent)), ReadOnly: true},
		{Name: "vda", Size: 5 * mebibyte, Serial: "Q-1"},
		{Name: "vdb", Size: 64 * mebibyte},
		{Name: "vdc", Size: 7 * mebibyte, Serial: "S-1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the guest's disks (-want +got):\n%s", diff)
	}
	blank := digestOf(make([]byte, 7*mebibyte))
	for name, want := range map[string]string{
		"sda": rawDigest, "sdb": qcowDigest, "sr0": digestOf(cdContent), "vda": qcowDigest, "vdc": blank,
	} {
		if got := vm.disk(name); got != want {
			t.Errorf("%s has the digest %s; want %s", name, got, want)
		}
	}
	for name, before := range map[string]string{"sda": rawDigest, "vda": qcowDigest, "vdc": blank} {
		if after := vm.write(name, "the guest's own"); after == before {
			t.Errorf("%s is not written", name)
		}
	}
	if after := snapshotFiles(t); !mapsHold(after, before) {
		t.Errorf("an image was written: before %v, after %v", before, after)
	}
	vm.stop(60)
	vm.removeIt()
	config := p.vmConfig(suite.tiny)
	config.Metadata.Attempt, config.LogPath = 1, "guest_1.log"
	mounts("/v/qcow2", qcowID, "/v/raw", rawID, "/v/fixed", rawID, "/v/cd", cdID, "/v/sata", qcowID)(config)
	next := p.create(config).start().up()
	for name, want := range map[string]string{"vda": qcowDigest, "vdc": blank} {
		if got := next.disk(name); got != want {
			t.Errorf("%s of a new container has the digest %s; want %s", name, got, want)
		}
	}
}

// mapsHold reports whether all of part is in whole.
func mapsHold(whole, part map[string]string) bool {
	for k, v := range part {
		if whole[k] != v {
			return false
		}
	}
	return true
}

// TestImageVolumesOfAPlainPod: without a VMI they are the disks behind the image's own, and a CD is one.
func TestImageVolumesOfAPlainPod(t *testing.T) {
	t.Parallel()
	data, digest := dataDisk(t, "data.img", "plain ", 2*mebibyte)
	cd := filepath.Join(t.TempDir(), "cd.iso")
	assert.NilError(t, guest.WriteCD(cd, guest.BootSector("from the CD", guest.Halt)))
	dataID := pushed(t, "plain-data:1", data, images.DiskOptions{})
	cdID := pushed(t, "plain-cd:1", cd, images.DiskOptions{})

	vm := vmPod(t).vm(suite.tiny, mounts("/mnt/data", dataID, "/mnt/tools", cdID)).start().up()
	disks := vm.guest().Disks
	if len(disks) != 2 || disks[1] != (guestDisk{Name: "vdb", Size: 2 * mebibyte}) || vm.disk("vdb") != digest {
		t.Errorf("the guest's disks %+v; want the image's own and data", disks)
	}
	if text := inNode(t, "virsh", "dumpxml", vm.info().VM.Domain.Name); !strings.Contains(text, "device='cdrom'") ||
		!strings.Contains(text, "ua-tools") {
		t.Errorf("the CD is none:\n%s", text)
	}

	boots := vmPod(t, named("cd")).vm(cdID)
	boots.start().saying("^from the CD$")
}

// TestBadDataDisks: what can't be a data disk is refused by its name, and nothing of it is left.
func TestBadDataDisks(t *testing.T) {
	t.Parallel()
	empty, _ := dataDisk(t, "empty.img", "x", 0)
	raw, _ := dataDisk(t, "raw.img", "x", mebibyte)
	busybox, err := suite.images.ImageStatus(t.Context(), &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: suite.busybox}})
	assert.NilError(t, err)
	two := images.DiskOptions{AsFolder: true, Above: [][]images.File{{{Name: "disk/b", From: raw}}}}
	for name, c := range map[string]struct{ image, want string }{
		"none":  {busybox.Image.Id, `disk "data": image "` + busybox.Image.Id + `": the image has no disk in /disk: mount an image with a disk`},
		"empty": {pushed(t, "bad-empty:1", empty, images.DiskOptions{}), `"/disk": empty file`},
		"two":   {pushed(t, "bad-two:1", raw, two), `not exactly one disk: /disk has more than one file in it`},
		"gone":  {"sha256:" + strings.Repeat("0", 64), `disk "data": image "sha256:` + strings.Repeat("0", 64) + `" is not on this node: pull it first`},
	} {
		t.Run(name, func(t *testing.T) {
			p := vmPod(t)
			config := p.vmConfig(suite.tiny)
			mounts("/data", c.image)(config)
			_, err := suite.cri.CreateContainer(t.Context(), p.createRequest(config))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v\nwant one with %s", err, c.want)
			}
			// What is left would fail the whole suite's comparison, and this: the same container with a disk that can be is no second one.
			config.Mounts = nil
			p.create(config)
		})
	}
}
