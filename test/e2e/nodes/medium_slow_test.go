//go:build cluster && slow

package nodes

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// The template's volume of the drive media, and the PVCs that it has in turn.
const (
	mediumOne, mediumTwo = "medium-one", "medium-two"
	mediaVolume          = `{"name": "media", "persistentVolumeClaim": {"claimName": %q, "hotpluggable": true}}`
)

// drive is a running VM with an empty CD-ROM drive.
type drive struct{ *mover }

// fill has the guest write other content to a PVC, and returns its sum.
func (d drive) fill(t *testing.T, pvc string) (sum string) {
	t.Helper()
	virtctl(t, "addvolume", d.name, "--volume-name="+pvc)
	disk := ""
	find := `for d in /sys/block/sd*; do [ "$(tail -c +5 $d/device/vpd_pg80 2>/dev/null)" = ` + pvc + ` ] && echo "${d##*/}"; done; :`
	wait.Until(t, "the guest has the disk", func() bool { disk = d.sh(t, find); return disk != "" })
	sum = d.sh(t, fmt.Sprintf("dd if=/dev/urandom of=/dev/%[1]s bs=64k count=16 conv=fsync 2>/dev/null; dd if=/dev/%[1]s bs=64k count=16 2>/dev/null | sha256sum", disk))
	virtctl(t, "removevolume", d.name, "--volume-name="+pvc)
	d.released(t, pvc, pvc)
	return sum
}

// released waits until neither the VM nor a pod has a volume, whose PVC is attached to no node.
func (d drive) released(t *testing.T, volume, pvc string) {
	t.Helper()
	wait.Success(t, pvc+" to be released", func(ctx context.Context) error {
		all, err := holders(ctx, volume)
		at, broken := attachedTo(ctx, pvc)
		if err == nil && broken == nil && len(all)+len(at) > 0 {
			err = fmt.Errorf("the attachment pods are %v, and the volume is attached to %q", all, at)
		}
		return err
	})
}

// change changes the list of the template's volumes.
func (d drive) change(t *testing.T, operation, at, value string) {
	t.Helper()
	patch := fmt.Sprintf(`[{"op": %q, "path": "/spec/template/spec/volumes/%s", "value": %s}]`, operation, at, value)
	_, err := suite.Kubectl(t.Context(), "patch", "vm", d.name, "--type=json", "-p", patch)
	assert.NilError(t, err)
}

// reads waits until the guest reads the content of a PVC, which the guest's node alone has then.
func (d drive) reads(t *testing.T, pvc, sum string) {
	t.Helper()
	wait.Success(t, "the guest to read "+pvc, func(ctx context.Context) error {
		if got := d.sh(t, "blockdev --flushbufs /dev/sr0; dd if=/dev/sr0 bs=64k count=16 2>/dev/null | sha256sum"); got != sum {
			return fmt.Errorf("it reads %s instead of %s", got, sum)
		}
		all, err := holders(ctx, "media")
		if err != nil {
			return err
		}
		at, err := attachedTo(ctx, pvc)
		if err == nil && (len(all) != 1 || !strings.HasSuffix(all[0], "/"+d.at) || at != d.at) {
			err = fmt.Errorf("the attachment pods are %v, and the volume is attached to %q", all, at)
		}
		return err
	})
	waitFor(t, "vmi/"+d.name, `jsonpath={.status.volumeStatus[?(@.name=="media")].phase}=Ready`)
	d.needsNoRestart(t)
}

func (d drive) needsNoRestart(t *testing.T) {
	t.Helper()
	got, err := suite.Kubectl(t.Context(), "get", "vm", d.name, "-o", `jsonpath={.status.conditions[?(@.type=="RestartRequired")].message}`)
	assert.NilError(t, err)
	assert.Equal(t, got, "")
}

// TestMedia: edits of the template insert PVCs and a registry disk into the empty CD-ROM drive of a running VM, change
// and eject them. A medium moves with its guest.
func TestMedia(t *testing.T) {
	whole(t)
	for _, pvc := range []string{mediumOne, mediumTwo} {
		provisioned(t, pvc, "ReadWriteMany")
	}
	o := movable("media-mover", "media-mover")
	devices := o["spec"].(object)["template"].(object)["spec"].(object)["domain"].(object)["devices"].(object)
	devices["disks"] = append(devices["disks"].([]object), object{"name": "media", "cdrom": object{"bus": "scsi"}})
	d := drive{moverOf(t, o)}
	one, two := d.fill(t, mediumOne), d.fill(t, mediumTwo)
	assert.Assert(t, one != two)

	d.change(t, "add", "-", fmt.Sprintf(mediaVolume, mediumOne))
	d.reads(t, mediumOne, one)
	migratable(t, d.name)
	d.move(t)
	d.reads(t, mediumOne, one)

	d.change(t, "replace", "2", fmt.Sprintf(mediaVolume, mediumTwo))
	d.reads(t, mediumTwo, two)
	at, err := attachedTo(t.Context(), mediumOne)
	assert.NilError(t, err)
	assert.Equal(t, at, "")
	d.change(t, "remove", "2", "null")
	d.released(t, "media", mediumTwo)
	assert.Equal(t, d.sh(t, "dd if=/dev/sr0 count=1 2>/dev/null | wc -c"), "0")
	d.needsNoRestart(t)

	d.change(t, "add", "0", fmt.Sprintf(mediaVolume, mediumOne))
	d.reads(t, mediumOne, one)
	migratable(t, d.name)
	d.move(t)
	d.reads(t, mediumOne, one)
	d.change(t, "remove", "0", "null")
	d.released(t, "media", mediumOne)

	// The disk of an image, which each node has.
	sum := func() string {
		return d.sh(t, "blockdev --flushbufs /dev/sr0; dd if=/dev/sr0 bs=64k count=16 2>/dev/null | sha256sum")
	}
	empty := sum()
	d.change(t, "add", "-", fmt.Sprintf(`{"name": "media", "containerDisk": {"image": %q}}`, suite.tiny))
	waitFor(t, "vmi/"+d.name, `jsonpath={.status.volumeStatus[?(@.name=="media")].phase}=Ready`)
	wait.Until(t, "the guest reads the image", func() bool { return sum() != empty })
	image := sum()
	size := "blockdev --getsize64 /dev/"
	assert.Equal(t, d.sh(t, size+"sr0"), d.sh(t, size+"vda")) // which is of the same image
	d.needsNoRestart(t)
	migratable(t, d.name)
	d.move(t)
	assert.Equal(t, sum(), image)
	d.change(t, "remove", "2", "null")
	wait.Until(t, "the medium is out", func() bool { return sum() == empty })
	d.needsNoRestart(t)
	d.intact(t)
}
