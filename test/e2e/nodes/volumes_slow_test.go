//go:build cluster && slow

package nodes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/cluster"
	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/loopdev"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/records"
	"github.com/nodevirt/nodevirt/test/wait"
)

// writing is a VM whose guest writes records, one after the other, to three provisioned volumes: a block device,
// a disk in a file system, and a file system that the guest mounts.
type writing struct {
	records.Flushed
	name, boot string
	files      []string // of the volumes' bytes, on the machine
	stop       func()
	done       chan error
}

// volumesOf are the names of the volumes, which end those of the PVCs, with their modes.
var volumesOf = [][2]string{{"block", "Block"}, {"files", "Filesystem"}, {"share", "Filesystem"}}

func (w *writing) pvcs() (names []string) {
	for _, v := range volumesOf {
		names = append(names, w.name+"-"+v[0])
	}
	return names
}

// startWriting creates a VM, and returns when its guest writes.
func startWriting(t *testing.T, name string, change func(spec object)) *writing {
	t.Helper()
	image, err := clustertest.PushDisk(t.Context(), suite.Cluster, "tiny-virtiofs:1", guest.TinyWithVirtiofs)
	assert.NilError(t, err)
	w := &writing{name: name}
	for i, pvc := range w.pvcs() {
		create(t, object{
			"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": object{"name": pvc},
			"spec": object{
				"storageClassName": "local", "volumeMode": volumesOf[i][1], "accessModes": []string{"ReadWriteOnce"},
				"resources": object{"requests": object{"storage": "128Mi"}},
			},
		})
		waitFor(t, "pvc/"+pvc, "jsonpath={.status.phase}=Bound")
		file, err := suite.VolumeFile(t.Context(), pvc)
		assert.NilError(t, err)
		w.files = append(w.files, file)
	}
	_, w.boot = answering(t, vm(name, func(spec object) {
		domain := spec["domain"].(object)
		domain["memory"] = object{"guest": "128Mi"}
		devices := domain["devices"].(object)
		devices["disks"] = append(devices["disks"].([]object),
			object{"name": "block", "disk": object{"bus": "virtio"}}, object{"name": "files", "disk": object{"bus": "virtio"}})
		devices["filesystems"] = []object{{"name": "share", "virtiofs": object{}}}
		volumes := []object{{"name": "boot", "containerDisk": object{"image": image}}}
		for i, pvc := range w.pvcs() {
			volumes = append(volumes, object{"name": volumesOf[i][0], "persistentVolumeClaim": object{"claimName": pvc}})
		}
		spec["volumes"] = volumes
		change(spec)
	}))
	w.begin(t)
	return w
}

// begin has the guest of a boot write.
func (w *writing) begin(t *testing.T) {
	t.Helper()
	host := "http://" + vmiField(t, w.name, ".status.interfaces[0].ipAddress")
	wait.Success(t, "the guest has its program", func(ctx context.Context) error {
		_, err := suite.Control().Fetch(ctx, http.MethodPost, host+"/cgi-bin/program", records.Program)
		return err
	})
	ask := func(ctx context.Context, input string) (string, error) {
		return suite.Control().Fetch(ctx, http.MethodPost, host+"/cgi-bin/run", input)
	}
	_, err := ask(t.Context(), records.Mount)
	assert.NilError(t, err)
	assert.NilError(t, w.ReadBack(t.Context(), ask), "what the guest has flushed is not on the volumes")
	ctx, cancel := context.WithCancel(t.Context())
	w.done = make(chan error, 1)
	slowly := func(ctx context.Context, input string) (string, error) { // a test has records until its end
		defer time.Sleep(200 * time.Millisecond)
		return ask(ctx, input)
	}
	go func() { w.done <- w.Write(ctx, slowly, records.Most) }()
	w.stop = cancel
	w.goesOn(t)
}

// goesOn waits until the guest has flushed some more records.
func (w *writing) goesOn(t *testing.T) {
	t.Helper()
	from := w.Count()
	wait.Success(t, "more records", func(context.Context) error {
		select {
		case err := <-w.done:
			t.Fatalf("the guest wrote %d records: %v", w.Count(), err)
		default:
		}
		if w.Count() < from+3 {
			return fmt.Errorf("%d records", w.Count())
		}
		return nil
	})
}

// ends waits for the end of the writes of a guest that is dead, or stops them.
func (w *writing) ends() {
	w.stop()
	<-w.done
}

// stays wants the guest to be the same one, which writes on, and its volumes to be attached to one node.
func (w *writing) stays(t *testing.T, at string) {
	t.Helper()
	w.goesOn(t)
	if got := answer(t, w.name, ""); got != w.boot {
		t.Fatal("the VM was booted again")
	}
	for _, pvc := range w.pvcs() {
		isAttached(t, pvc, at)
	}
}

// follows waits for the next guest, which has all that the former one has flushed, and writes.
func (w *writing) follows(t *testing.T, at string) {
	t.Helper()
	w.boot = answer(t, w.name, w.boot)
	for _, pvc := range w.pvcs() {
		isAttached(t, pvc, at)
	}
	w.begin(t)
}

// watchAttachments fails the test if a volume is ever attached to two nodes.
func (w *writing) watchAttachments(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-done
	})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for _, pvc := range w.pvcs() {
				if at, err := attachedTo(ctx, pvc); err == nil && len(strings.Fields(at)) > 1 {
					t.Errorf("the volume of %s is attached to %s", pvc, at)
					return
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}()
}

// nothingLeft deletes the VM and its PVCs, and waits until nothing of the volumes is left: no attachment, no
// device, no mount on a node, and no file of libvirtd or the shim.
func (w *writing) nothingLeft(t *testing.T) {
	t.Helper()
	w.ends()
	kubectl(t, "delete", "vm", w.name)
	wait.Success(t, "volumes that are not attached", func(ctx context.Context) error {
		for _, pvc := range w.pvcs() {
			if at, err := attachedTo(ctx, pvc); err != nil || at != "" {
				return errors.Join(err, fmt.Errorf("%s is attached to %s", pvc, at))
			}
		}
		return nil
	})
	for _, file := range w.files {
		all, err := loopdev.Of(file)
		assert.NilError(t, err)
		assert.Equal(t, len(all), 0, "%s is attached: %v", file, all)
	}
	clean(t)
	n := suite.Node(harmed)
	for _, program := range []string{"qemu-system-x86_64", "virtiofsd", "dnsmasq"} {
		all, err := processes(program)
		assert.NilError(t, err)
		for _, p := range all {
			if strings.Contains(p.groups, "/"+n.Name()+"/") {
				t.Errorf("process %d of %s is left: %q", p.pid, program, p.command)
			}
		}
	}
	assert.NilError(t, wait.Do(t.Context(), func(ctx context.Context) error { return w.noTraces(ctx, n) }))
	kubectl(t, append([]string{"delete", "pvc"}, w.pvcs()...)...)
	wait.Success(t, "volumes that are gone", func(context.Context) error {
		for _, file := range w.files {
			if _, err := os.Stat(filepath.Dir(file)); err == nil {
				return fmt.Errorf("%s is there", filepath.Dir(file))
			}
		}
		return nil
	})
}

// noTraces returns an error if a node has something of the VM: a mount, a device, a file of the shim's, or a
// definition, a folder or a secret of libvirtd's.
func (w *writing) noTraces(ctx context.Context, n *node.Node) error {
	now, err := n.Leftovers(ctx)
	if err != nil {
		return err
	}
	its := map[string]func(item string) bool{
		"mount": func(item string) bool {
			return strings.Contains(item, "/csi/") || strings.Contains(item, "kubernetes.io~csi")
		},
		"file":   func(item string) bool { return strings.Contains(item, "/containers/") },
		"secret": func(item string) bool { return filepath.Ext(item) == ".xml" || filepath.Ext(item) == ".base64" },
		"domain": func(item string) bool { return strings.Contains(item, "virt-launche") }, // libvirtd cuts names
	}
	var left []string
	for kind, is := range its {
		for _, item := range now[kind] {
			if is(item) {
				left = append(left, kind+" "+item)
			}
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("%s has\n%s", n.Name(), strings.Join(left, "\n"))
	}
	return nil
}

// TestVolumesWhileDaemonsAreKilled kills each daemon of a node, and all at once, while a guest writes to volumes
// there: the guest goes on, and so do its volumes. When the guest's QEMU or its virtiofsd is killed, or the power of
// the node is cut, the next guest has all that was flushed. Nothing is left when the VM is deleted.
func TestVolumesWhileDaemonsAreKilled(t *testing.T) {
	whole(t)
	w := startWriting(t, "written", on(harmed))
	watchTwo(t)
	w.watchAttachments(t)
	n := suite.Node(harmed)
	all := []string{node.Containerd, node.Libvirtd, node.Shim, cluster.Kubelet, cluster.CSI} // as a node starts them
	for _, killed := range append([][]string{all}, slices.Collect(slices.Chunk(all, 1))...) {
		for _, daemon := range killed {
			assert.NilError(t, n.Kill(t.Context(), daemon, syscall.SIGKILL))
		}
		w.goesOn(t)
		for _, daemon := range killed {
			assert.NilError(t, n.Resume(t.Context(), daemon))
		}
		waitFor(t, "node/"+harmed, "condition=Ready")
		w.stays(t, harmed)
		t.Logf("%v killed: %d records", killed, w.Count())
	}
	for _, program := range []string{"virtiofsd", "qemu-system-x86_64"} {
		killAll(t, harmed, program)
		w.ends()
		w.follows(t, harmed)
		t.Logf("%s killed: %d records", program, w.Count())
	}
	cut(t)
	w.ends()
	assert.NilError(t, w.On(w.files[0]))
	assert.NilError(t, suite.Boot(t.Context(), harmed))
	w.follows(t, harmed)
	w.nothingLeft(t)
}

// TestVolumesOfALostNode cuts the power of a node whose guest writes. All that the guest has flushed is in the
// volumes, which stay attached to the node, and the VM runs nowhere else, until the administrator declares the
// node out of service. Then another node has them, and nothing is left on the one that was lost.
func TestVolumesOfALostNode(t *testing.T) {
	whole(t)
	w := startWriting(t, "stranded", rather(harmed))
	pod := kubectl(t, "get", "pods", "--selector=app="+w.name, "-o", "name")
	watchTwo(t)
	w.watchAttachments(t)
	cut(t)
	w.ends()
	assert.NilError(t, w.On(w.files[0]))
	waitFor(t, "vmi/"+w.name, "jsonpath={.status.phase}=Unknown")
	stays(t, w.name, pod)
	for _, pvc := range w.pvcs() {
		isAttached(t, pvc, harmed)
	}

	kubectl(t, "taint", "node", harmed, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
	w.follows(t, steady)
	assert.NilError(t, suite.Boot(t.Context(), harmed))
	waitFor(t, "node/"+harmed, "condition=Ready")
	kubectl(t, "taint", "node", harmed, "node.kubernetes.io/out-of-service-")
	clean(t)
	assert.NilError(t, guestRuns(w.name))
	w.stays(t, steady)
	w.nothingLeft(t)
}
