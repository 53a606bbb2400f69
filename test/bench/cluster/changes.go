package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

const (
	// attachGoal is how long a disk may take beyond the kubelet's mount, resizeGoal until a guest sees what it
	// got, in milliseconds.
	attachGoal = 150
	resizeGoal = 500
	// sizes is a program that prints how many vCPUs and blocks of memory the guest sees.
	sizes = "#!/bin/sh\nset -- /sys/devices/system/cpu/cpu[0-9]*\necho $#\nset -- /sys/devices/system/memory/memory[0-9]*\necho $#\n"
)

// changing is a VM that can grow while it runs.
var changing = subject{vm.resource, vmiRunning, vmiGone, func(r *rig, name string) object {
	o := vm.object(r, name)
	domain := o["spec"].(object)["template"].(object)["spec"].(object)["domain"].(object)
	domain["cpu"] = object{"sockets": int64(1), "maxSockets": int64(16)}
	domain["memory"] = object{"guest": "384Mi", "maxGuest": "8Gi"}
	return o
}}

// changes measures disks, vCPUs and memory that a running VM gets.
func (r *rig) changes(ctx context.Context, rounds int) (report.Section, error) {
	const name = "changed"
	section := report.Section{Title: "Changes of a running VM, from the patch of its template on", Notes: []string{
		"A guest is asked by HTTP, which takes it tens of milliseconds under emulation. Memory comes in blocks of 128 MiB.",
	}}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(rounds+1)*limit)
	defer cancel()
	if _, err := r.create(ctx, changing, name); err != nil {
		return section, err
	}
	if _, err := r.answers(ctx, name); err != nil {
		return section, err
	}
	if _, err := r.ask(ctx, name, "program", sizes); err != nil {
		return section, err
	}
	var all [7]report.Series
	for i := range rounds {
		fmt.Fprintf(r.log, "changes of a running VM: round %d of %d\n", i+1, rounds)
		mounted, ready, gone, err := r.plug(ctx, name, fmt.Sprintf("plugged-%d", i))
		if err != nil {
			return section, err
		}
		cpu, err := r.grow(ctx, name, object{"cpu": object{"sockets": int64(2 + i)}}, 0)
		if err != nil {
			return section, err
		}
		memory, err := r.grow(ctx, name, object{"memory": object{"guest": fmt.Sprintf("%dMi", 384+128*(i+1))}}, 1)
		if err != nil {
			return section, err
		}
		for n, took := range []time.Duration{mounted, ready, ready - mounted, gone, cpu, memory} {
			all[n].Add(milliseconds(took))
		}
	}
	for n, of := range []struct {
		name string
		goal float64
	}{
		{"disk: attachment pod Running", 0},
		{"disk: volume Ready", 0},
		{"disk: Ready after the pod", attachGoal},
		{"disk: removed", 0},
		{"vCPU: seen by the guest", resizeGoal},
		{"memory: seen by the guest", resizeGoal},
	} {
		section.Rows = append(section.Rows, report.Row{Name: of.name, Unit: "ms", Kind: report.Value, Goal: of.goal, Measured: all[n]})
	}
	if _, err := r.remove(ctx, changing, name); err != nil {
		return section, err
	}
	_, err := r.seen.wait(ctx, name, vmiGone)
	return section, err
}

// ask has a page of a guest answer.
func (r *rig) ask(ctx context.Context, name, page, body string) (string, error) {
	return r.Control().Fetch(ctx, "POST", "http://"+r.seen.ip(name)+"/cgi-bin/"+page, body)
}

// plug gives a VM a disk, and removes it.
func (r *rig) plug(ctx context.Context, name, volume string) (mounted, ready, gone time.Duration, err error) {
	if err := r.volume(ctx, volume); err != nil {
		return 0, 0, 0, err
	}
	devices := []string{"template", "spec", "domain", "devices", "disks"}
	begun, err := r.edit(ctx, name, []edit{
		{"add", devices, object{"name": volume, "serial": volume, "disk": object{"bus": "virtio"}}},
		{"add", []string{"template", "spec", "volumes"}, object{
			"name": volume, "persistentVolumeClaim": object{"claimName": volume, "hotpluggable": true},
		}},
	})
	if err != nil {
		return 0, 0, 0, err
	}
	at, err := r.seen.wait(ctx, name, volumeReady(volume))
	if err != nil {
		return 0, 0, 0, err
	}
	ready = at.Sub(begun)
	vmi, err := r.client.Resource(vmis).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return 0, 0, 0, fmt.Errorf("read instance %s: %w", name, err)
	}
	volumes, _, _ := unstructured.NestedSlice(vmi.Object, "status", "volumeStatus")
	for _, v := range volumes {
		if v, ok := v.(map[string]any); ok && v["name"] == volume {
			pod, _, _ := unstructured.NestedString(v, "hotplugVolume", "attachPodName")
			if at, err = r.seen.wait(ctx, pod, podRunning); err != nil {
				return 0, 0, 0, err
			}
			mounted = at.Sub(begun)
		}
	}
	begun, err = r.edit(ctx, name, []edit{{"remove", devices, nil}, {"remove", []string{"template", "spec", "volumes"}, nil}})
	if err != nil {
		return 0, 0, 0, err
	}
	at, err = r.seen.wait(ctx, name, volumeGone(volume))
	return mounted, ready, at.Sub(begun), err
}

// volume makes a PVC that is a folder of the first node.
func (r *rig) volume(ctx context.Context, name string) error {
	folder := filepath.Join(r.Nodes()[0].Dir(), name)
	if err := os.Mkdir(folder, 0o777); err != nil {
		return fmt.Errorf("make a volume: %w", err)
	}
	return r.Apply(ctx, fmt.Sprintf(`apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: %[1]s}
provisioner: kubernetes.io/no-provisioner
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  storageClassName: %[1]s
  accessModes: [ReadWriteOnce]
  capacity: {storage: 96Mi}
  local: {path: %[2]q}
  nodeAffinity:
    required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node-1]}]}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[1]s, namespace: %[3]s}
spec:
  storageClassName: %[1]s
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 96Mi}}
`, name, folder, namespace))
}

// edit adds an element to a list of a VM's spec, or removes the last of two.
type edit struct {
	op    string
	list  []string
	value any
}

// edit patches a VM, and returns when.
func (r *rig) edit(ctx context.Context, name string, edits []edit) (time.Time, error) {
	var patch []object
	for _, e := range edits {
		path := "/spec/" + strings.Join(e.list, "/")
		if e.op == "add" {
			patch = append(patch, object{"op": "add", "path": path + "/-", "value": e.value})
		} else {
			patch = append(patch, object{"op": "remove", "path": path + "/1"})
		}
	}
	return r.patch(ctx, name, types.JSONPatchType, patch)
}

func (r *rig) patch(ctx context.Context, name string, kind types.PatchType, patch any) (time.Time, error) {
	text, err := json.Marshal(patch)
	if err != nil {
		return time.Time{}, fmt.Errorf("patch VM %s: %w", name, err)
	}
	begun := time.Now()
	if _, err := r.client.Resource(vm.resource).Namespace(namespace).Patch(ctx, name, kind, text, metav1.PatchOptions{}); err != nil {
		return begun, fmt.Errorf("patch VM %s: %w", name, err)
	}
	return begun, nil
}

// grow patches a VM's domain, and measures until its guest sees more of one of its sizes.
func (r *rig) grow(ctx context.Context, name string, domain object, which int) (time.Duration, error) {
	size := func() (int, error) {
		text, err := r.ask(ctx, name, "run", "\n")
		if err != nil {
			return 0, err
		}
		fields := strings.Fields(text)
		if len(fields) <= which {
			return 0, fmt.Errorf("the sizes of %s: %q", name, text)
		}
		return strconv.Atoi(fields[which])
	}
	before, err := size()
	if err != nil {
		return 0, err
	}
	begun, err := r.patch(ctx, name, types.MergePatchType, object{"spec": object{"template": object{"spec": object{"domain": domain}}}})
	if err != nil {
		return 0, err
	}
	for {
		now, err := size()
		switch {
		case err != nil:
			return 0, err
		case now > before:
			return time.Since(begun), nil
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return 0, fmt.Errorf("wait for a larger guest of %s: %w", name, err)
		}
	}
}
