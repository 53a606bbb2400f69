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

// provisioned makes a PVC with an access mode, whose volume the cluster makes.
func provisioned(t *testing.T, name, mode string) {
	t.Helper()
	create(t, object{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": object{"name": name},
		"spec": object{
			"storageClassName": "local", "volumeMode": "Block", "accessModes": []string{mode},
			"resources": object{"requests": object{"storage": "32Mi"}},
		},
	})
}

// virtctl runs a command of KubeVirt's.
func virtctl(t *testing.T, args ...string) {
	t.Helper()
	if out, err := suite.VirtctlCommand(t.Context(), args...).CombinedOutput(); err != nil {
		t.Fatalf("virtctl %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// holders are the attachment pods of a volume, with their nodes.
func holders(ctx context.Context, volume string) (all []string, err error) {
	out, err := suite.Kubectl(ctx, "get", "pods", "--selector=kubevirt.io=hotplug-disk",
		"-o", `jsonpath={range .items[*]}{.metadata.name}{"/"}{.spec.nodeName}{"\n"}{end}`)
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "hp-volume-"+volume) {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all, err
}

// heldOn waits until one attachment pod has a volume, that of the instance's status, on a node, to which alone the
// volume is attached. It returns the pod's name.
func heldOn(t *testing.T, name, volume, node string) (pod string) {
	t.Helper()
	wait.Success(t, volume+" on "+node, func(ctx context.Context) error {
		var err error
		pod, err = suite.Kubectl(ctx, "get", "vmi", name, "-o", fmt.Sprintf(`jsonpath={.status.volumeStatus[?(@.name==%q)].hotplugVolume.attachPodName}`, volume))
		if err != nil {
			return err
		}
		all, err := holders(ctx, volume)
		if err != nil {
			return err
		}
		at, err := attachedTo(ctx, volume)
		if err == nil && (len(all) != 1 || all[0] != pod+"/"+node || at != node) {
			err = fmt.Errorf("the instance has %s, the attachment pods are %v, and the volume is attached to %s", pod, all, at)
		}
		return err
	})
	return pod
}

// A volume that a running VM has got by virtctl moves with the guest, by virtctl and by an eviction, and goes afterwards.
// A migration that is cancelled leaves it where it is. One that a single node can use keeps the guest on its node.
func TestAPluggedVolumeMoves(t *testing.T) {
	whole(t)
	const volume, alone = "plugged-shared", "plugged-alone"
	provisioned(t, volume, "ReadWriteMany")
	provisioned(t, alone, "ReadWriteOnce")
	m := newMover(t, "plugged-mover")
	watchRunning(t)
	virtctl(t, "addvolume", m.name, "--volume-name="+volume)
	ready := fmt.Sprintf(`jsonpath={.status.volumeStatus[?(@.name==%q)].phase}=Ready`, volume)
	waitFor(t, "vmi/"+m.name, ready)
	migratable(t, m.name)
	disk := ""
	find := `for d in /sys/block/sd*; do [ "$(tail -c +5 $d/device/vpd_pg80 2>/dev/null)" = ` + volume + ` ] && echo "${d##*/}"; done; :`
	wait.Until(t, "the guest has the disk", func() bool { disk = m.sh(t, find); return disk != "" })
	content := func() string {
		t.Helper()
		return m.sh(t, "blockdev --flushbufs /dev/"+disk+"; dd if=/dev/"+disk+" bs=64k count=64 2>/dev/null | sha256sum")
	}
	fill := func(at int) {
		t.Helper()
		m.sh(t, fmt.Sprintf("dd if=/dev/urandom of=/dev/%s bs=64k seek=%d count=16 conv=fsync 2>/dev/null", disk, at))
	}
	fill(0)
	written := content()
	heldOn(t, m.name, volume, m.at)

	virtctl(t, "migrate", m.name)
	wait.Success(t, "the target's attachment pod", func(ctx context.Context) error {
		all, err := holders(ctx, volume)
		if err == nil && len(all) != 2 {
			err = fmt.Errorf("the attachment pods are %v", all)
		}
		return err
	})
	virtctl(t, "migrate-cancel", m.name)
	heldOn(t, m.name, volume, m.at) // and not on the other node
	settledAt(t, m.name, m.boot, m.at)
	assert.Equal(t, content(), written)

	virtctl(t, "migrate", m.name)
	m.succeeded(t)
	holder := heldOn(t, m.name, volume, m.at)
	waitFor(t, "vmi/"+m.name, ready)
	assert.Equal(t, content(), written)
	fill(16)
	written = content()

	migratable(t, m.name)
	if err := evict(t.Context(), holder); err == nil || !strings.Contains(err.Error(), "Eviction triggered evacuation") {
		t.Errorf("the eviction of an attachment pod: %v", err)
	}
	m.succeeded(t)
	heldOn(t, m.name, volume, m.at)
	assert.Equal(t, content(), written)

	virtctl(t, "addvolume", m.name, "--volume-name="+alone)
	waitFor(t, "vmi/"+m.name, "condition=LiveMigratable=False")
	why := vmiField(t, m.name, `.status.conditions[?(@.type=="LiveMigratable")].message`)
	if !strings.Contains(why, "PVC "+alone+" is not shared") {
		t.Errorf("the instance stays on its node: %q", why)
	}
	for _, name := range []string{alone, volume} {
		waitFor(t, "vmi/"+m.name, fmt.Sprintf(`jsonpath={.status.volumeStatus[?(@.name==%q)].phase}=Ready`, name))
		virtctl(t, "removevolume", m.name, "--volume-name="+name)
		wait.Success(t, name+" without a pod", func(ctx context.Context) error {
			all, err := holders(ctx, name)
			at, broken := attachedTo(ctx, name)
			if err == nil && broken == nil && len(all)+len(at) > 0 {
				err = fmt.Errorf("the attachment pods are %v, and the volume is attached to %q", all, at)
			}
			return err
		})
	}
	migratable(t, m.name)
	m.intact(t)
}
