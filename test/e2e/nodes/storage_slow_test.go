//go:build cluster && slow

package nodes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/wait"
)

// storage says that the cluster provides volumes. Its programs take minutes to build.
const storage = true

// onPVC is a VM that boots from a provisioned PVC, which its image fills first.
func onPVC(t *testing.T, name string, change func(spec object)) object {
	t.Helper()
	return onPVCOf(t, name, "ReadWriteOnce", change)
}

// onPVCOf is such a VM whose PVC has an access mode.
func onPVCOf(t *testing.T, name, mode string, change func(spec object)) object {
	t.Helper()
	create(t, object{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": object{"name": name},
		"spec": object{
			"storageClassName": "local", "volumeMode": "Block", "accessModes": []string{mode},
			"resources": object{"requests": object{"storage": "96Mi"}},
		},
	})
	o := vm(name, func(spec object) {
		spec["volumes"] = []object{
			{"name": "boot", "persistentVolumeClaim": object{"claimName": name}},
			{"name": "image", "containerDisk": object{"image": suite.tiny}},
		}
		change(spec)
	})
	o["spec"].(object)["template"].(object)["metadata"].(object)["annotations"] = object{vmspec.AnnotationDiskOrigin: "boot=image"}
	return o
}

// write has the guest of a VM flush a text to its disk.
func write(t *testing.T, name, text string) {
	t.Helper()
	url := "http://" + vmiField(t, name, ".status.interfaces[0].ipAddress") + "/cgi-bin/disk"
	kubectl(t, "exec", "asker", "--", "timeout", "30", "wget", "-q", "-O", "-", "--post-data="+text, url)
}

// holds wants the disk of a VM to have a text.
func holds(t *testing.T, name, text string) {
	t.Helper()
	got, err := fetch(t.Context(), "asker", vmiField(t, name, ".status.interfaces[0].ipAddress"), "/cgi-bin/disk")
	if err != nil || strings.TrimSpace(got) != text {
		t.Errorf("the disk of %s has %q, %v; want %q", name, got, err, text)
	}
}

// attachedTo returns the nodes to which the volume of a PVC is attached.
func attachedTo(ctx context.Context, pvc string) (string, error) {
	volume, err := suite.Kubectl(ctx, "get", "pvc", pvc, "-o", "jsonpath={.spec.volumeName}")
	if err != nil {
		return "", err
	}
	const path = `jsonpath={.items[?(@.spec.source.persistentVolumeName=="%s")].spec.nodeName}`
	nodes, err := suite.Kubectl(ctx, "get", "volumeattachments", "-o", fmt.Sprintf(path, volume))
	return strings.TrimSpace(nodes), err
}

// isAttached wants the volume of a PVC to be attached to one node, or to none.
func isAttached(t *testing.T, pvc, node string) {
	t.Helper()
	if at, err := attachedTo(t.Context(), pvc); err != nil || at != node {
		t.Errorf("the volume of %s is attached to %q, %v; want %q", pvc, at, err, node)
	}
}

// While the CSI driver or the kubelet is away a guest keeps its volume. A VM that is deleted meanwhile releases it
// when they are back.
func TestAVolumeWhileItsDaemonsAreAway(t *testing.T) {
	whole(t)
	name, first := answering(t, onPVC(t, "unattended", on(harmed)))
	n := suite.Node(harmed)
	for _, daemon := range []string{cluster.CSI, cluster.Kubelet} {
		assert.NilError(t, n.Kill(t.Context(), daemon, 9))
		write(t, name, "without "+daemon)
		assert.NilError(t, n.Resume(t.Context(), daemon))
		holds(t, name, "without "+daemon)
	}
	waitFor(t, "node/"+harmed, "condition=Ready")
	if got := answer(t, name, ""); got != first {
		t.Error("the VM was booted again")
	}
	isAttached(t, name, harmed)

	assert.NilError(t, n.Kill(t.Context(), cluster.CSI, 9))
	kubectl(t, "delete", "vm", name, "--wait=false")
	wait.Success(t, "no guest", func(context.Context) error {
		if guestRuns(name) == nil {
			return errors.New("it runs")
		}
		return nil
	})
	isAttached(t, name, harmed) // the kubelet can't unstage it
	assert.NilError(t, n.Resume(t.Context(), cluster.CSI))
	wait.Success(t, "a volume that is not attached", func(ctx context.Context) error {
		at, err := attachedTo(ctx, name)
		if err == nil && at != "" {
			err = fmt.Errorf("it is attached to %s", at)
		}
		return err
	})
	clean(t)
}

// TestAFilledVolumeMoves: a guest moves whose first pod has made the PVC a copy of an image. Its next pods have neither
// the image nor the annotation.
func TestAFilledVolumeMoves(t *testing.T) {
	whole(t)
	name, first := answering(t, onPVCOf(t, "filled-mover", "ReadWriteMany", func(spec object) {
		rather(harmed)(spec)
		spec["domain"].(object)["devices"].(object)["interfaces"] = []object{{"name": "default", "masquerade": object{}}}
	}))
	write(t, name, "kept")
	waitFor(t, "pvc/"+name, `jsonpath={.metadata.annotations.nodevirt\.io/disk-filled}=true`)
	m := &mover{name: name}
	for _, to := range []string{steady, harmed} {
		migratable(t, name)
		m.begin(t)
		waitFor(t, "vmi/"+name, "jsonpath={.status.nodeName}="+to)
		settledAt(t, name, first, to)
		holds(t, name, "kept")
	}
}
