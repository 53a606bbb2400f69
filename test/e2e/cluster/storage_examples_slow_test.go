//go:build cluster && slow

package cluster

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/wait"
)

// applyWith applies an example with replacements, and deletes its objects when the test ends.
func applyWith(t *testing.T, example string, replacements []string, objects ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(examples(t), example))
	assert.NilError(t, err)
	undo(t, func(ctx context.Context) error {
		if t.Failed() {
			about, _ := suite.Kubectl(ctx, append([]string{"describe"}, objects...)...)
			t.Log(about)
		}
		_, err := suite.Kubectl(ctx, append([]string{"delete", "--ignore-not-found"}, objects...)...)
		return err
	})
	assert.NilError(t, suite.Apply(t.Context(), strings.NewReplacer(replacements...).Replace(string(text))))
}

// TestTheExampleOfAPVC: the PVC becomes a copy of the image, and keeps what the guest writes, also where it wipes its
// disk: the next guest does not get the image again.
func TestTheExampleOfAPVC(t *testing.T) {
	t.Parallel()
	applyWith(t, "pvc.yaml", []string{"10Gi", "128Mi", "guest: 1Gi", "guest: 96Mi"}, "vm/keeper", "pvc/keeper")
	ip := addressOf(t, "keeper")
	first := answerOf(t, "keeper", "")
	write(t, ip, "kept")
	assert.NilError(t, suite.WaitFor(t.Context(), "pvc/keeper", `jsonpath={.metadata.annotations.nodevirt\.io/disk-filled}=true`))
	kubectl(t, "delete", "vmi", "keeper")
	answerOf(t, "keeper", first)
	ip = addressOf(t, "keeper")
	asked(t, ip, "/cgi-bin/disk", "kept")

	const head = 1 << 20 // by which a node knows a disk
	_, err := suite.Control().Fetch(t.Context(), http.MethodPost, "http://"+ip+"/cgi-bin/block?vda", string(make([]byte, head)))
	assert.NilError(t, err)
	former := kubectl(t, "get", "vmi", "keeper", "-o", "jsonpath={.metadata.uid}")
	kubectl(t, "delete", "vmi", "keeper")
	wait.Until(t, "the next instance runs", func() bool {
		out, err := suite.Kubectl(t.Context(), "get", "vmi", "keeper", "-o", "jsonpath={.status.phase} {.metadata.uid}")
		return err == nil && strings.HasPrefix(out, "Running ") && !strings.HasSuffix(out, former)
	})
	volume, err := suite.VolumeFile(t.Context(), "keeper")
	assert.NilError(t, err)
	f, err := os.Open(volume)
	assert.NilError(t, err)
	defer f.Close()
	got := make([]byte, head)
	_, err = f.ReadAt(got, 0)
	assert.NilError(t, err)
	if !bytes.Equal(got, make([]byte, head)) {
		t.Error("the disk that the guest has wiped begins with something")
	}
}

// TestTheExampleOfAFileSystem: the guest mounts the PVC and the ConfigMap.
func TestTheExampleOfAFileSystem(t *testing.T) {
	t.Parallel()
	image, err := clustertest.PushDisk(t.Context(), suite.Cluster, "tiny-virtiofs:1", guest.TinyWithVirtiofs)
	assert.NilError(t, err)
	applyWith(t, "filesystem.yaml", []string{
		"storage: 1Gi", "storage: 128Mi", "guest: 512Mi", "guest: 128Mi", "registry.example.com/debian-disk:12", image,
	}, "vmi/filesystem", "pvc/shared", "configmap/live-settings")
	prints(t, "filesystem", "the color is blue")
}

// TestAHostDisk is not parallel: it switches a feature on for all. An instance boots from a file of its node, unless
// Pod Security keeps its namespace from the node's files.
func TestAHostDisk(t *testing.T) {
	withHostDisks(t)
	disk := object{"path": "/var/data/disk.img", "type": "Disk"}
	name := made(t, strangersVMI("on-host-disk", func(spec, _, _ object) {
		spec["volumes"] = []object{{"name": "boot", "hostDisk": disk}}
	}))
	write(t, addressOf(t, name), "kept")
	kubectl(t, "delete", "vmi", name)

	const refused, namespace = "refused-host-disk", "--namespace=" + stranger
	undo(t, func(ctx context.Context) error {
		_, err := suite.Kubectl(ctx, namespace, "delete", "vmi", refused, "--ignore-not-found")
		return err
	})
	assert.NilError(t, asStranger(t, strangersVMI(refused, volume(object{"hostDisk": disk}))))
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+refused, "condition=Synchronized=false", namespace))
	why := kubectl(t, namespace, "get", "vmi", refused, "-o", `jsonpath={.status.conditions[?(@.type=="Synchronized")].message}`)
	if !strings.Contains(why, "violates PodSecurity") {
		t.Errorf("the instance says %q", why)
	}
}

// withHostDisks lets VMs have disks on their nodes, and makes one with a guest, /var/data/disk.img.
func withHostDisks(t *testing.T) {
	t.Helper()
	withGate(t, "HostDisk")
	disk, err := guest.Tiny(t.Context(), suite.Control().GuestOptions())
	assert.NilError(t, err)
	for _, n := range suite.Nodes() {
		undo(t, func(ctx context.Context) error {
			_, err := n.Output(ctx, "rm", "-rf", "/var/data")
			return err
		})
		_, err := n.Output(t.Context(), "mkdir", "-p", "/var/data")
		assert.NilError(t, err)
		_, err = n.Output(t.Context(), "qemu-img", "convert", "-O", "raw", disk, "/var/data/disk.img")
		assert.NilError(t, err)
	}
}

// templated is a VM whose disk is a PVC of its template.
func templated(name string, source object) object {
	vmi := strangersVMI(name, func(spec, _, _ object) {
		spec["terminationGracePeriodSeconds"] = 5
		spec["volumes"] = []object{{"name": "boot", "dataVolume": object{"name": name}}}
	})
	return object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": object{"name": name},
		"spec": object{
			"runStrategy": "Always", "template": object{"spec": vmi["spec"]},
			"dataVolumeTemplates": []object{{"metadata": object{"name": name}, "spec": object{"source": source, "storage": object{
				"storageClassName": "local", "volumeMode": "Block", "accessModes": []string{"ReadWriteOnce"},
				"resources": object{"requests": object{"storage": "128Mi"}},
			}}}},
		},
	}
}

// TestTemplatesWithoutCDI: a VM's PVC is made of an image by the node, and of another PVC, a snapshot or nothing by the
// cluster's storage. It is deleted with its VM.
func TestTemplatesWithoutCDI(t *testing.T) {
	t.Parallel()
	const pulled, copied, restored, blank = "from-image", "from-pvc", "from-snapshot", "from-nothing"
	made(t, templated(pulled, object{"registry": object{"url": "docker://" + suite.tiny}}))
	write(t, addressOf(t, pulled), "kept")
	snapshot := made(t, object{
		"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": object{"name": pulled},
		"spec": object{"volumeSnapshotClassName": "local", "source": object{"persistentVolumeClaimName": pulled}},
	})
	assert.NilError(t, suite.WaitFor(t.Context(), "volumesnapshot/"+snapshot, "jsonpath={.status.readyToUse}=true"))
	made(t, templated(copied, object{"pvc": object{"namespace": "default", "name": pulled}}))
	made(t, templated(restored, object{"snapshot": object{"namespace": "default", "name": snapshot}}))
	made(t, templated(blank, object{"blank": object{}}))
	for _, name := range []string{copied, restored} {
		asked(t, addressOf(t, name), "/cgi-bin/disk", "kept")
	}
	assert.NilError(t, suite.WaitFor(t.Context(), "vmi/"+blank, "jsonpath={.status.phase}=Running"))
	kubectl(t, "delete", "vm", blank)
	kubectl(t, "wait", "pvc/"+blank, "--for=delete", "--timeout=120s")
}
