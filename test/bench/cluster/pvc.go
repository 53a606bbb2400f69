package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/nodevirt/nodevirt/test/bench/report"
	"github.com/nodevirt/nodevirt/test/guest"
)

// pvcGoal is how much longer than a VMI on a container disk one on a PVC may take when the kubelet has mounted that, in
// milliseconds.
const pvcGoal = 100

// onPVC is a VMI that boots from the PVC of its name.
var onPVC = subject{vmis, vmiRunning, vmiGone, func(r *rig, name string) object {
	o := vmi.object(r, name)
	o["spec"].(object)["volumes"] = []any{object{"name": "boot", "persistentVolumeClaim": object{"claimName": name}}}
	return o
}}

// pvcs compares VMIs that boot from a PVC with those that boot from a container disk.
func (r *rig) pvcs(ctx context.Context, rounds int) (report.Section, error) {
	s := report.Section{
		Title: "A VMI that boots from a PVC, against one that boots from a container disk",
		Notes: []string{"The PVC is a folder of the node, bound before, with the same disk as a raw file."},
	}
	disk, err := guest.Tiny(ctx, r.Control().GuestOptions())
	if err != nil {
		return s, err
	}
	rows := map[string]*report.Row{}
	for _, name := range pvcRows() {
		rows[name] = &report.Row{
			Name: name, Unit: "ms", Kind: report.More, Baseline: report.Series{Of: "container disk"}, Measured: report.Series{Of: "PVC"},
		}
	}
	rows[ownStart].Goal = pvcGoal
	for i := range rounds + 1 {
		fmt.Fprintf(r.log, "PVCs: round %d of %d\n", i, rounds)
		image, err := r.live(ctx, vmi, fmt.Sprintf("on-image-%d", i))
		if err != nil {
			return s, err
		}
		name := fmt.Sprintf("on-pvc-%d", i)
		if err := r.filled(ctx, name, disk); err != nil {
			return s, err
		}
		pvc, err := r.live(ctx, onPVC, name)
		if err != nil {
			return s, err
		}
		if i == 0 {
			continue
		}
		for name, row := range rows {
			row.Baseline.Add(milliseconds(startOf(image)[name]))
			row.Measured.Add(milliseconds(startOf(pvc)[name]))
		}
	}
	for _, name := range pvcRows() {
		s.Rows = append(s.Rows, *rows[name])
	}
	return s, nil
}

// The parts of a start, in the order of the report.
const (
	toSandbox = "created to the pod's sandbox: the kubelet's mount"
	ownStart  = "from there to Running"
	toRunning = "created to Running"
	toAnswer  = "created to an answer over HTTP"
)

func pvcRows() []string { return []string{toSandbox, ownStart, toRunning, toAnswer} }

func startOf(l life) map[string]time.Duration {
	return map[string]time.Duration{
		toSandbox: l.phases[podSandbox], ownStart: l.phases[vmiRunning] - l.phases[podSandbox],
		toRunning: l.phases[vmiRunning], toAnswer: l.answers,
	}
}

// filled makes a PVC with a disk, and waits until it is bound.
func (r *rig) filled(ctx context.Context, name, disk string) error {
	if err := r.volume(ctx, name); err != nil {
		return err
	}
	to := filepath.Join(r.Nodes()[0].Dir(), name, "disk.img")
	out, err := exec.CommandContext(ctx, "qemu-img", "convert", "-f", "qcow2", "-O", "raw", "-t", "writeback", disk, to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("fill volume %s: %w: %s", name, err, out)
	}
	return r.WaitFor(ctx, "pvc/"+name, "jsonpath={.status.phase}=Bound", "--namespace="+namespace)
}
