//go:build data

package data

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// step takes one of the steps that are possible.
func (w *world) step() {
	w.Helper()
	all := []func() string{
		w.write, w.write, w.restart, w.snap, w.snap, w.restore, w.restore, w.restore, w.refuse, w.clone, w.swap, w.plug, w.unplug,
		w.create, w.deleteVM, w.deleteSnapshot,
	}
	for {
		if what := all[w.rng.IntN(len(all))](); what != "" {
			fmt.Fprintln(&w.log, what)
			return
		}
	}
}

// spec returns the spec of a PVC of a random class and mode.
func (w *world) spec() object {
	mode, size := "Block", "32Mi"
	if w.rng.IntN(2) == 0 {
		mode, size = "Filesystem", "128Mi"
	}
	class := []string{"local", "local-wait"}[w.rng.IntN(2)]
	return object{
		"storageClassName": class, "volumeMode": mode, "accessModes": []string{"ReadWriteOnce"},
		"resources": object{"requests": object{"storage": size}},
	}
}

// pvc makes a PVC of a user.
func (w *world) pvc() string {
	name := w.name("disk")
	w.apply(object{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": object{"name": name}, "spec": w.spec()})
	w.disks[name] = new(disk)
	return name
}

// device is the entry of a volume in a VM's list of disks. A guest finds it by its serial number.
func device(name string) object {
	return object{"name": name, "serial": name, "disk": object{"bus": "virtio"}}
}

// create starts a VM with a disk of its user, and perhaps one that it owns.
func (w *world) create() string {
	w.Helper()
	if len(w.vms) == 3 {
		return ""
	}
	name, m := w.name("vm"), &machine{running: true}
	disks := []object{{"name": "boot", "disk": object{"bus": "virtio"}}}
	volumes := []object{{"name": "boot", "containerDisk": object{"image": suite.image}}}
	first := w.pvc()
	m.volumes = append(m.volumes, volume{"first", first, false})
	disks, volumes = append(disks, device("first")), append(volumes, object{"name": "first", "persistentVolumeClaim": object{"claimName": first}})
	var templates []object
	if w.rng.IntN(2) == 0 {
		second := w.name("own")
		w.disks[second] = &disk{owned: true}
		m.volumes = append(m.volumes, volume{"second", second, false})
		disks, volumes = append(disks, device("second")), append(volumes, object{"name": "second", "dataVolume": object{"name": second}})
		templates = []object{{
			"metadata": object{"name": second}, "spec": object{"source": object{"blank": object{}}, "pvc": w.spec()},
		}}
	}
	w.apply(object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": object{"name": name},
		"spec": object{"runStrategy": "Always", "dataVolumeTemplates": templates, "template": object{"spec": object{
			"terminationGracePeriodSeconds": 30,
			"domain": object{"memory": object{"guest": "128Mi"}, "devices": object{"disks": disks, "interfaces": []object{
				{"name": "default", "masquerade": object{}}}}},
			"networks": []object{{"name": "default", "pod": object{}}},
			"volumes":  volumes,
		}}},
	})
	w.vms[name] = m
	w.started(name)
	return fmt.Sprintf("create VM %s with %v", name, m.volumes)
}

// write has a guest write a new mark to each of its disks.
func (w *world) write() string {
	w.Helper()
	vm := pick(w, w.vms, func(m *machine) bool { return m.running })
	if vm == "" {
		return ""
	}
	var what []string
	for _, v := range w.vms[vm].volumes {
		w.marks++
		w.inGuest(vm, fmt.Sprintf("printf %%s '%s' | dd of=$d conv=sync,fsync bs=512 count=1 2>/dev/null", text(w.marks)), v.name)
		w.disks[v.pvc].mark = w.marks
		what = append(what, fmt.Sprintf("%d on %s", w.marks, v.pvc))
	}
	return fmt.Sprintf("write in VM %s: %s", vm, strings.Join(what, ", "))
}

// run sets a VM's strategy, and waits until it is followed.
func (w *world) run(vm, strategy string) {
	w.Helper()
	w.kubectl("patch", "vm", vm, "--type=merge", "-p", `{"spec":{"runStrategy":"`+strategy+`"}}`)
	w.vms[vm].running = strategy == "Always"
	if w.vms[vm].running {
		w.started(vm)
		return
	}
	w.kubectl("wait", "vmi/"+vm, "--for=delete", "--timeout=3m")
	w.must("vm/"+vm, "jsonpath={.status.printableStatus}=Stopped")
}

func (w *world) restart() string {
	w.Helper()
	vm := pick(w, w.vms, func(*machine) bool { return true })
	if vm == "" {
		return ""
	}
	if w.vms[vm].running {
		w.run(vm, "Halted")
		if w.rng.IntN(2) == 0 {
			return "stop VM " + vm
		}
	}
	w.run(vm, "Always")
	return "start VM " + vm
}

func source(vm string) object {
	return object{"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": vm}
}

// snap takes a snapshot of a VM.
func (w *world) snap() string {
	w.Helper()
	vm := pick(w, w.vms, func(*machine) bool { return true })
	if vm == "" || len(w.snapshots) == 4 {
		return ""
	}
	name, s := w.name("snap"), &snapshot{vm: vm, marks: map[string]int{}}
	for _, v := range w.vms[vm].volumes {
		s.marks[v.name] = w.disks[v.pvc].mark
	}
	w.apply(object{
		"apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineSnapshot", "metadata": object{"name": name},
		"spec": object{"source": source(vm)},
	})
	w.must("vmsnapshot/"+name, "jsonpath={.status.readyToUse}=true")
	w.snapshots[name] = s
	return fmt.Sprintf("snapshot %s of VM %s: %v", name, vm, s.marks)
}

func restoring(name, snapshot, target, policy string) object {
	spec := object{"target": source(target), "virtualMachineSnapshotName": snapshot, "targetReadinessPolicy": "StopTarget"}
	if policy != "" {
		spec["volumeRestorePolicy"] = policy
	}
	return object{
		"apiVersion": "snapshot.kubevirt.io/v1beta1", "kind": "VirtualMachineRestore", "metadata": object{"name": name}, "spec": spec,
	}
}

// restore returns a VM to a snapshot, or makes a new one of it.
func (w *world) restore() string {
	w.Helper()
	snap := pick(w, w.snapshots, func(*snapshot) bool { return true })
	if snap == "" {
		return ""
	}
	s := w.snapshots[snap]
	target, policy := s.vm, []string{"", "RandomizeNames", "InPlace", "PrefixTargetName"}[w.rng.IntN(4)]
	fresh := w.vms[target] == nil || w.rng.IntN(3) == 0
	if fresh {
		if len(w.vms) == 3 {
			return ""
		}
		target = w.name("restored")
		if policy == "InPlace" {
			policy = ""
		}
		w.vms[target] = new(machine)
	}
	name := w.name("restore")
	what := fmt.Sprintf("restore %s of snapshot %s to VM %s, policy %q", name, snap, target, policy)
	if policy == "PrefixTargetName" && slices.ContainsFunc(w.vms[target].volumes, func(v volume) bool { return w.disks[target+"-"+v.name] != nil }) {
		return "" // its names are taken
	}
	fmt.Fprintln(&w.log, "begin:", what)
	before := slices.Clone(w.vms[target].volumes)
	w.apply(restoring(name, snap, target, policy))
	w.must("vmrestore/"+name, "jsonpath={.status.complete}=true")
	w.learn(target)
	for _, v := range w.vms[target].volumes {
		w.disks[v.pvc].mark = s.marks[v.name]
	}
	for _, old := range before {
		if d := w.disks[old.pvc]; d.owned && !w.used(old.pvc) {
			delete(w.disks, old.pvc) // as with KubeVirt, a VM's own disks go with their templates
		}
	}
	w.vms[target].running = false
	w.run(target, "Always")
	w.kubectl("delete", "vmrestore", name)
	return what
}

// used reports whether a VM has a PVC.
func (w *world) used(pvc string) bool {
	for _, m := range w.vms {
		if slices.ContainsFunc(m.volumes, func(v volume) bool { return v.pvc == pvc }) {
			return true
		}
	}
	return false
}

// refuse asks for restores that would take the disks of another VM.
func (w *world) refuse() string {
	w.Helper()
	snap := pick(w, w.snapshots, func(s *snapshot) bool { return w.vms[s.vm] != nil })
	if snap == "" {
		return ""
	}
	s := w.snapshots[snap]
	other := pick(w, w.vms, func(m *machine) bool { return m != w.vms[s.vm] })
	target, policy := other, []string{"", "InPlace", "PrefixTargetName"}[w.rng.IntN(3)]
	if other == "" || w.rng.IntN(2) == 0 {
		target, policy = w.name("thief"), "InPlace"
	}
	what := fmt.Sprintf("restore of snapshot %s to VM %s, policy %q", snap, target, policy)
	if err := w.try(restoring(w.name("refused"), snap, target, policy)); err == nil {
		w.Errorf("admitted: %s", what)
	}
	return "refused: " + what
}

// clone makes a copy of a VM.
func (w *world) clone() string {
	w.Helper()
	vm := pick(w, w.vms, func(*machine) bool { return true })
	if vm == "" || len(w.vms) == 3 {
		return ""
	}
	name, target := w.name("clone"), w.name("copy")
	marks := map[string]int{}
	for _, v := range w.vms[vm].volumes {
		marks[v.name] = w.disks[v.pvc].mark
	}
	what := fmt.Sprintf("clone VM %s to %s: %v", vm, target, marks)
	fmt.Fprintln(&w.log, "begin:", what)
	w.vms[target] = new(machine)
	w.apply(object{
		"apiVersion": "clone.kubevirt.io/v1beta1", "kind": "VirtualMachineClone", "metadata": object{"name": name},
		"spec": object{"source": source(vm), "target": source(target)},
	})
	w.must("vmclone/"+name, "jsonpath={.status.phase}=Succeeded")
	w.learn(target)
	for _, v := range w.vms[target].volumes {
		w.disks[v.pvc].mark = marks[v.name]
	}
	w.run(target, "Always")
	w.kubectl("delete", "vmclone", name)
	return what
}

// swap gives a stopped VM another disk in place of its user's.
func (w *world) swap() string {
	w.Helper()
	vm := pick(w, w.vms, func(m *machine) bool {
		return len(m.volumes) > 0 && m.volumes[0].name == "first" && !w.disks[m.volumes[0].pvc].owned
	})
	if vm == "" {
		return ""
	}
	old, next := w.vms[vm].volumes[0].pvc, w.pvc()
	running := w.vms[vm].running
	if running {
		w.run(vm, "Halted")
	}
	w.volumes(vm, func(all []object) []object {
		for _, v := range all {
			if v["name"] == "first" {
				v["persistentVolumeClaim"] = object{"claimName": next}
			}
		}
		return all
	}, func(all []object) []object { return all })
	w.learn(vm)
	w.run(vm, "Always")
	return fmt.Sprintf("PVC %s in place of %s in VM %s", next, old, vm)
}

// volumes changes the volumes and disks in a VM's template.
func (w *world) volumes(vm string, volumes, disks func([]object) []object) {
	w.Helper()
	var o struct {
		Spec struct {
			Template struct {
				Spec struct {
					Volumes []object
					Domain  struct{ Devices struct{ Disks []object } }
				}
			}
		}
	}
	w.get("vm", vm, &o)
	patch, err := json.Marshal([]object{
		{"op": "replace", "path": "/spec/template/spec/volumes", "value": volumes(o.Spec.Template.Spec.Volumes)},
		{"op": "replace", "path": "/spec/template/spec/domain/devices/disks", "value": disks(o.Spec.Template.Spec.Domain.Devices.Disks)},
	})
	assert.NilError(w, err)
	w.kubectl("patch", "vm", vm, "--type=json", "-p", string(patch))
}

// plug adds a disk to a VM that runs.
func (w *world) plug() string {
	w.Helper()
	vm := pick(w, w.vms, func(m *machine) bool { return m.running && len(m.volumes) < 4 })
	if vm == "" {
		return ""
	}
	name, pvc := fmt.Sprintf("hot%d", w.names), w.pvc()
	w.volumes(vm, func(all []object) []object {
		return append(all, object{"name": name, "persistentVolumeClaim": object{"claimName": pvc, "hotpluggable": true}})
	}, func(all []object) []object { return append(all, device(name)) })
	w.learn(vm)
	w.must("vmi/"+vm, fmt.Sprintf(`jsonpath={.status.volumeStatus[?(@.name=="%s")].phase}=Ready`, name))
	return fmt.Sprintf("plug PVC %s as %s into VM %s", pvc, name, vm)
}

// unplug removes a plugged disk, whose PVC stays.
func (w *world) unplug() string {
	w.Helper()
	plugged := func(v volume) bool { return v.plugged }
	vm := pick(w, w.vms, func(m *machine) bool { return m.running && slices.ContainsFunc(m.volumes, plugged) })
	if vm == "" {
		return ""
	}
	m := w.vms[vm]
	gone := m.volumes[slices.IndexFunc(m.volumes, plugged)]
	without := func(all []object) []object {
		return slices.DeleteFunc(all, func(o object) bool { return o["name"] == gone.name })
	}
	w.volumes(vm, without, without)
	w.learn(vm)
	wait.Success(w, "VM "+vm+" without "+gone.name, func(ctx context.Context) error {
		out, err := suite.Kubectl(ctx, "get", "vmi", vm, "-o", "jsonpath={.status.volumeStatus[*].name}")
		if err == nil && slices.Contains(strings.Fields(out), gone.name) {
			err = fmt.Errorf("it has %s", out)
		}
		return err
	})
	return fmt.Sprintf("unplug %s (PVC %s) from VM %s", gone.name, gone.pvc, vm)
}

// deleteVM deletes a VM. Disks that it owns go with it.
func (w *world) deleteVM() string {
	w.Helper()
	vm := pick(w, w.vms, func(*machine) bool { return true })
	if vm == "" || len(w.vms) < 2 {
		return ""
	}
	gone := w.vms[vm]
	w.kubectl("delete", "vm", vm)
	delete(w.vms, vm)
	for _, v := range gone.volumes {
		if w.disks[v.pvc].owned && !w.used(v.pvc) {
			delete(w.disks, v.pvc)
		}
	}
	return "delete VM " + vm
}

func (w *world) deleteSnapshot() string {
	w.Helper()
	name := pick(w, w.snapshots, func(*snapshot) bool { return true })
	if name == "" {
		return ""
	}
	w.kubectl("delete", "vmsnapshot", name)
	delete(w.snapshots, name)
	return "delete snapshot " + name
}
