//go:build data

package data

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/wait"
)

type object = map[string]any

// disk is what a user knows of a PVC.
type disk struct {
	mark  int  // the last that a guest has written; 0 for none
	owned bool // it goes with the VM that it was made for
}

// volume is a VM's use of a PVC, by a DataVolume of the same name or directly.
type volume struct {
	name, pvc string
	plugged   bool
}

type machine struct {
	running bool
	volumes []volume
}

type snapshot struct {
	vm    string
	marks map[string]int // by volume
}

// world is a model of what one sequence has made, all of which has the prefix in its name.
type world struct {
	*testing.T
	rng       *rand.Rand
	prefix    string
	disks     map[string]*disk
	vms       map[string]*machine
	snapshots map[string]*snapshot
	marks     int
	names     int
	log       strings.Builder
}

func (w *world) name(kind string) string {
	w.names++
	return fmt.Sprintf("%s-%s%d", w.prefix, kind, w.names)
}

func (w *world) kubectl(args ...string) string {
	w.Helper()
	return clustertest.Kubectl(w.T, suite.Cluster, args...)
}

// must waits until an object meets a condition.
func (w *world) must(object, condition string) {
	w.Helper()
	assert.NilError(w, suite.WaitFor(w.Context(), object, condition))
}

func (w *world) apply(o object) {
	w.Helper()
	assert.NilError(w, w.try(o))
}

// try creates an object, and returns what refused it.
func (w *world) try(o object) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return suite.Apply(w.Context(), string(text))
}

// get decodes an object.
func (w *world) get(kind, name string, into any) {
	w.Helper()
	assert.NilError(w, json.Unmarshal([]byte(w.kubectl("get", kind, name, "-o", "json")), into))
}

// any returns a name from a map; "" if none is accepted.
func pick[T any](w *world, all map[string]T, accept func(T) bool) string {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool { return !accept(all[name]) })
	if len(names) == 0 {
		return ""
	}
	return names[w.rng.IntN(len(names))]
}

// check fails if a disk or a guest has another mark than the model.
func (w *world) check() {
	w.Helper()
	for _, pvc := range slices.Sorted(maps.Keys(w.disks)) {
		want := w.disks[pvc].mark
		if got, err := onDisk(w.Context(), pvc); err != nil || got != want {
			w.Errorf("PVC %s has mark %d, %v; want %d", pvc, got, err, want)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.vms)) {
		if vm := w.vms[name]; vm.running {
			for _, v := range vm.volumes {
				if want := w.disks[v.pvc].mark; want != 0 {
					if got := w.inGuest(name, "dd if=$d bs=512 count=1 2>/dev/null", v.name); got != text(want) {
						w.Errorf("VM %s reads %q from volume %s (PVC %s); want %q", name, got, v.name, v.pvc, text(want))
					}
				}
			}
		}
	}
	if w.Failed() {
		w.Fatalf("steps:\n%s", w.log.String())
	}
}

// text is a mark as a guest writes it at the begin of a disk.
func text(mark int) string { return fmt.Sprintf("data-mark-%08d;", mark) }

var marked = regexp.MustCompile(`data-mark-([0-9]{8});`)

// onDisk returns the only mark on the volume of a PVC, which has it at its begin or in a file.
func onDisk(ctx context.Context, pvc string) (mark int, err error) {
	path, err := suite.VolumeFile(ctx, pvc)
	if err != nil {
		return 0, err
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	chunk := make([]byte, 1<<20) // marks are at a block's begin
	seen := map[int]bool{}
	for {
		n, err := io.ReadFull(f, chunk)
		for _, m := range marked.FindAllSubmatch(chunk[:n], -1) {
			if _, err := fmt.Sscanf(string(bytes.TrimLeft(m[1], "0")), "%d", &mark); err != nil {
				return 0, err
			}
			seen[mark] = true
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	if len(seen) > 1 {
		return 0, fmt.Errorf("it has the marks %v", slices.Sorted(maps.Keys(seen)))
	}
	return mark, nil
}

// inGuest runs a line in a guest, with $d as the device of a volume.
func (w *world) inGuest(vm, line, volume string) (out string) {
	w.Helper()
	script := fmt.Sprintf(`for b in /sys/block/vd*; do [ "$(cat $b/serial)" = %s ] && d=/dev/${b##*/}; done; [ "$d" ] && %s`, volume, line)
	wait.Success(w, "volume "+volume+" in the guest of "+vm, func(ctx context.Context) error {
		pod, err := suite.Kubectl(ctx, "get", "pods", "-l", "vm.kubevirt.io/name="+vm, "--field-selector=status.phase=Running",
			"-o", "jsonpath={.items[0].metadata.name}")
		if err != nil {
			return err
		}
		out, err = suite.Kubectl(ctx, "exec", pod, "--", "sh", "-c", script)
		return err
	})
	out, _, _ = strings.Cut(out, "\x00")
	return strings.TrimSpace(out)
}

// started waits until a VM's guest answers.
func (w *world) started(vm string) {
	w.Helper()
	w.must("vmi/"+vm, "condition=AgentConnected")
}

// learn takes what a VM's template names: a restore and a clone choose their disks' names.
func (w *world) learn(vm string) {
	w.Helper()
	var o struct {
		Spec struct {
			DataVolumeTemplates []struct{ Metadata struct{ Name string } }
			Template            struct {
				Spec struct {
					Volumes []struct {
						Name                  string
						PersistentVolumeClaim *struct {
							ClaimName    string
							Hotpluggable bool
						}
						DataVolume *struct {
							Name         string
							Hotpluggable bool
						}
					}
				}
			}
		}
	}
	w.get("vm", vm, &o)
	m := w.vms[vm]
	m.volumes = nil
	for _, v := range o.Spec.Template.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			m.volumes = append(m.volumes, volume{v.Name, v.PersistentVolumeClaim.ClaimName, v.PersistentVolumeClaim.Hotpluggable})
		case v.DataVolume != nil:
			m.volumes = append(m.volumes, volume{v.Name, v.DataVolume.Name, v.DataVolume.Hotpluggable})
		}
	}
	for _, v := range m.volumes {
		if w.disks[v.pvc] == nil {
			w.disks[v.pvc] = new(disk)
		}
	}
	for _, t := range o.Spec.DataVolumeTemplates {
		if d := w.disks[t.Metadata.Name]; d != nil {
			d.owned = true
		}
	}
}

// remove deletes all that the sequence has made.
func (w *world) remove() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), wait.Patience)
	defer cancel()
	if w.Failed() {
		about, _ := suite.Kubectl(ctx, "get", "vm,vmi,pods,pvc,vmsnapshot,vmrestore,vmclone", "-o", "wide")
		more, _ := suite.Kubectl(ctx, "get", "vm,vmrestore,vmclone,vmsnapshot", "-o", "yaml")
		w.Logf("%s\n%s", about, lines(more, w.prefix))
	}
	kinds := []string{"vm", "vmclone", "vmrestore", "vmsnapshot", "pvc"}
	if *cdi {
		kinds = append(kinds, "datavolume")
	}
	for _, kind := range kinds {
		all, err := suite.Kubectl(ctx, "get", kind, "-o", "name")
		if err != nil {
			w.Error(err)
		}
		for _, one := range strings.Fields(all) {
			_, name, _ := strings.Cut(one, "/")
			if !strings.HasPrefix(name, w.prefix+"-") && w.disks[name] == nil {
				continue
			}
			if _, err := suite.Kubectl(ctx, "delete", one, "--ignore-not-found", "--wait="+fmt.Sprint(kind == "vm")); err != nil {
				w.Error(err)
			}
		}
	}
}

// lines are the documents of a YAML list that name a sequence.
func lines(list, prefix string) string {
	var its []string
	for _, one := range strings.Split(list, "\n- ") {
		if strings.Contains(one, prefix+"-") {
			its = append(its, one)
		}
	}
	return strings.Join(its, "\n- ")
}
