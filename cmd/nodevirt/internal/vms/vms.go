// Package vms is the commands on VMs that there are: nodevirt ps, inspect,
// console and rm.
//
// It owns how a VM is found and shown. All that it knows comes from the shim's
// CRI socket: a VM is a container whose verbose status tells of one.
package vms

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
	"github.com/nodevirt/nodevirt/shim/vminfo"
)

// VM is a VM container with its pod.
type VM struct {
	Pod    *runtimeapi.PodSandbox
	Status *runtimeapi.ContainerStatus
	Info   vminfo.VM
	// PID is QEMU's, 0 where it doesn't run.
	PID int
	// Err is why the shim could not tell of it: then Info and PID are unknown, and
	// Status has what the shim's list tells. It may be another container of a VM's
	// pod, then.
	Err error
}

// Name is how people call the VM: its pod's name.
func (v VM) Name() string { return v.Pod.GetMetadata().GetName() }

// Namespace is its pod's.
func (v VM) Namespace() string { return v.Pod.GetMetadata().GetNamespace() }

// State is the container's, in CRI's words without their prefix.
func (v VM) State() string {
	state := strings.TrimPrefix(v.Status.GetState().String(), "CONTAINER_")
	return state[:1] + strings.ToLower(state[1:])
}

// IP is where others reach the guest, empty where it has none (any more).
func (v VM) IP() string {
	if v.Info.Network == nil {
		return ""
	}
	for _, ip := range v.Info.Network.PodIPs() {
		return ip.String()
	}
	return ""
}

// CPUs counts the guest's.
func (v VM) CPUs() uint32 {
	c := v.Info.Spec.CPU
	return c.Sockets * c.Cores * c.Threads
}

// Uptime is how long the VM has run, or did.
func (v VM) Uptime(now time.Time) time.Duration {
	begin, end := v.Status.GetStartedAt(), v.Status.GetFinishedAt()
	if begin == 0 {
		return 0
	}
	if end == 0 {
		end = now.UnixNano()
	}
	return time.Duration(end - begin)
}

// Find returns the VM that a user means: by NAME or NAMESPACE/NAME of its pod,
// by the beginning of its container's or its pod's id, or by libvirt's name. Of
// several that a name fits, the one that runs is meant.
func Find(ctx context.Context, n *cli.Node, want string) (VM, error) {
	all, err := List(ctx, n)
	if err != nil {
		return VM{}, err
	}
	return choose(all, want)
}

func choose(all []VM, want string) (VM, error) {
	fit := slices.DeleteFunc(slices.Clone(all), func(v VM) bool { return !v.is(want) })
	if running := slices.DeleteFunc(slices.Clone(fit), func(v VM) bool { return !v.runs() }); len(running) > 0 {
		fit = running
	}
	switch len(fit) {
	case 0:
		return VM{}, fmt.Errorf("no VM %q on this node: \"nodevirt ps -a\" lists them", want)
	case 1:
		return fit[0], nil
	}
	var ids []string
	for _, v := range fit {
		ids = append(ids, fmt.Sprintf("%s/%s (%s)", v.Namespace(), v.Name(), cli.ShortID(v.Status.GetId())))
	}
	return VM{}, fmt.Errorf("%q means several VMs: %s: name one by its container's id", want, strings.Join(ids, ", "))
}

const minID = 3

func (v VM) is(want string) bool {
	if want == v.Name() || want == v.Namespace()+"/"+v.Name() || want == v.Info.Domain.Name {
		return true
	}
	return len(want) >= minID &&
		(strings.HasPrefix(v.Status.GetId(), want) || strings.HasPrefix(v.Pod.GetId(), want))
}

func (v VM) runs() bool {
	return v.Status.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
}
