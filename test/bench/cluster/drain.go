package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nodevirt/nodevirt/test/bench/report"
)

// vm is a VirtualMachine of such instances as are measured otherwise.
var vm = subject{
	schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachines"}, vmiRunning, vmiGone,
	func(r *rig, name string) object {
		return object{
			"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": object{"name": name},
			"spec": object{"runStrategy": "Always", "template": object{"spec": vmi.object(r, name)["spec"]}},
		}
	},
}

// drains measures how long a VM is away whose node is drained.
func (r *rig) drains(ctx context.Context, rounds int) (report.Section, error) {
	section := report.Section{Title: "A drain, from the request on"}
	if err := r.spare(ctx, false); err != nil {
		return section, err
	}
	var drained, answers report.Series
	for i := range rounds {
		fmt.Fprintf(r.log, "a drain: round %d of %d\n", i+1, rounds)
		off, back, err := r.drain(ctx, fmt.Sprintf("drained-%d", i))
		if err != nil {
			return section, err
		}
		drained.Add(milliseconds(off))
		answers.Add(milliseconds(back))
	}
	section.Rows = []report.Row{
		{Name: "guest shut down, drain done", Unit: "ms", Kind: report.Value, Measured: drained},
		{Name: "VM answers on the other node", Unit: "ms", Kind: report.Value, Measured: answers},
	}
	return section, r.spare(ctx, true)
}

// drain drains the node of a VM, and measures when the drain was done and when the VM answered again.
func (r *rig) drain(ctx context.Context, name string) (off, back time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if _, err := r.create(ctx, vm, name); err != nil {
		return 0, 0, err
	}
	if _, err := r.answers(ctx, name); err != nil {
		return 0, 0, err
	}
	// Up, a guest hears the power button.
	if err := sleep(ctx, 5*time.Second); err != nil {
		return 0, 0, err
	}
	at, err := r.Kubectl(ctx, "get", "vmi", name, "--namespace="+namespace, "-o", "jsonpath={.status.nodeName}")
	if err != nil {
		return 0, 0, err
	}
	at = strings.TrimSpace(at)
	former, begun := r.seen.ip(name), time.Now()
	if _, err := r.Kubectl(ctx, "drain", at, "--pod-selector=vm.kubevirt.io/name="+name); err != nil {
		return 0, 0, err
	}
	off = time.Since(begun)
	for r.seen.ip(name) == former {
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return 0, 0, fmt.Errorf("wait for %s on another node: %w", name, err)
		}
	}
	answered, err := r.answers(ctx, name)
	if err != nil {
		return 0, 0, err
	}
	for _, args := range [][]string{{"uncordon", at}, {"delete", "vm", name, "--namespace=" + namespace}} {
		if _, err := r.Kubectl(ctx, args...); err != nil {
			return 0, 0, err
		}
	}
	return off, answered.Sub(begun), nil
}
