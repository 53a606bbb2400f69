package lifecycle_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/migrate/order"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/shim/vmstate"
	"github.com/nodevirt/nodevirt/test/needs"
)

// withVariables are the annotations of a VM whose UEFI variables are persistent, and its container. The node has
// a firmware then, and the volume "state".
func (n *node) withVariables(t *testing.T) (map[string]string, *runtimeapi.ContainerConfig) {
	t.Helper()
	n.addFirmware(t)
	folder := filepath.Join(n.dir, "state")
	must(t, os.Mkdir(folder, 0o700))
	c := request(0)
	c.Mounts = []*runtimeapi.Mount{{ContainerPath: vmspec.StatePath, HostPath: folder}}
	return map[string]string{vmspec.AnnotationVMI: strings.Replace(uefiVMI, `"secureBoot": false`, `"secureBoot": false, "persistent": true`, 1)}, c
}

// TestPersistentVariables: the firmware starts with a copy of the variables in the volume, which begin as the
// node's, and then writes to those in the volume. They stay when the container is removed.
func TestPersistentVariables(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		annotations, c := n.withVariables(t)
		kept := filepath.Join(n.dir, "state", "uefi-variables")
		for i, want := range []string{"variables", "VARIABLES"} {
			name := fmt.Sprint("pod-", i)
			if i > 0 { // the guest has written
				must(t, os.WriteFile(kept, []byte(want), 0o600))
			}
			id, err := n.Create(t.Context(), n.addPod(t, name, annotations), c)
			must(t, err)
			started, err := os.ReadFile(filepath.Join(n.layout.Folder(id), "uefi-variables"))
			if err != nil || string(started) != want {
				t.Errorf("%s starts with %q, %v", name, started, err)
			}
			must(t, n.Start(t.Context(), id))
			if got := n.libvirt.Variables(n.rec(t, id).Domain.UUID); got != kept && filepath.Base(got) != filepath.Base(kept) {
				t.Errorf("the firmware writes to %q", got)
			}
			must(t, n.Stop(t.Context(), id, 0))
			must(t, n.Remove(t.Context(), id))
			if text, err := os.ReadFile(kept); err != nil || string(text) != want {
				t.Errorf("the volume has %q, %v", text, err)
			}
		}
		n.wantNothing(t)
	})
}

// TestArrivingVariables: a VM that waits for its guest leaves the variables to the guest's source. The guest
// that came has them once the source has released them.
func TestArrivingVariables(t *testing.T) {
	onNode(t, func(t *testing.T, n *node) {
		annotations, c := n.withVariables(t)
		folder := filepath.Join(n.dir, "state")
		kept := filepath.Join(folder, "uefi-variables")
		must(t, os.WriteFile(kept, []byte("VARIABLES"), 0o600))
		source, err := vmstate.Variables(folder, kept)
		must(t, err)
		annotations[order.Annotation] = migration
		id, err := n.Create(t.Context(), n.addPod(t, "pod", annotations), c)
		must(t, err)
		must(t, n.Start(t.Context(), id))
		n.arrive(t, id)
		v, err := n.table.Find(id)
		must(t, err)
		if err := n.Reserve(t.Context(), v); !errors.Is(err, vmstate.ErrInUse) {
			t.Errorf("while the source has them: %v", err)
		}
		must(t, source.Close())
		must(t, n.Reserve(t.Context(), v))
		if got := n.libvirt.Variables(n.rec(t, id).Domain.UUID); filepath.Base(got) != filepath.Base(kept) {
			t.Errorf("the firmware writes to %q", got)
		}
		must(t, n.Inherit(v))
		must(t, n.Yield(v))
		must(t, n.Reclaim(v))
		must(t, n.libvirt.Lifecycle.Resume(t.Context(), n.rec(t, id).Domain.UUID))
		must(t, n.Admit(t.Context(), v))
		must(t, n.Stop(t.Context(), id, 0))
		must(t, n.Remove(t.Context(), id))
		if text, err := os.ReadFile(kept); err != nil || string(text) != "VARIABLES" {
			t.Errorf("the volume has %q, %v", text, err)
		}
		n.wantNothing(t)
	})
}

// TestPersistentTPM: swtpm gets the folder of its state in the volume, which stays.
func TestPersistentTPM(t *testing.T) {
	needs.Parts(t, "root")
	onNode(t, func(t *testing.T, n *node) {
		folder := filepath.Join(n.dir, "volume")
		must(t, os.Mkdir(folder, 0o700))
		c := request(0)
		c.Mounts = []*runtimeapi.Mount{{ContainerPath: vmspec.StatePath, HostPath: folder}}
		annotations := map[string]string{vmspec.AnnotationVMI: strings.Replace(withTPM()[vmspec.AnnotationVMI], `"tpm": {}`, `"tpm": {"persistent": true}`, 1)}
		id, err := n.Create(t.Context(), n.addPod(t, "pod", annotations), c)
		must(t, err)
		must(t, n.Start(t.Context(), id))
		if o, runs, _ := n.tpms.Owner(id); !runs || o.State == nil {
			t.Errorf("its owner is %+v, %t", o, runs)
		}
		must(t, n.Stop(t.Context(), id, 0))
		must(t, n.Remove(t.Context(), id))
		if info, err := os.Stat(filepath.Join(folder, "tpm")); err != nil || !info.IsDir() {
			t.Errorf("the volume has %v, %v", info, err)
		}
		n.wantNothing(t)
	})
}
