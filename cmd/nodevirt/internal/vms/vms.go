// Package vms implements the commands on existing VMs: nodevirt ps, inspect, console, vnc and rm.
//
// It owns how VMs are found and shown. All data comes from the shim's CRI socket: a
// container is a VM if its verbose status describes one. It leaves the terminal to package console.
package vms

import (
	"cmp"
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
	// PID is QEMU's process ID, 0 while it does not run.
	PID int
	// Err is why the shim could not report the status. Then Info and PID are
	// unknown, Status has the fields of the shim's list, and the container may be
	// an ordinary one of the VM's pod.
	Err error
}

// Name returns the VM's name, which is that of its pod.
func (v VM) Name() string { return v.Pod.GetMetadata().GetName() }

// Namespace returns the namespace of its pod.
func (v VM) Namespace() string { return v.Pod.GetMetadata().GetNamespace() }

// State returns the container's state, as in CRI without the prefix.
func (v VM) State() string {
	state := strings.TrimPrefix(v.Status.GetState().String(), "CONTAINER_")
	return state[:1] + strings.ToLower(state[1:])
}

// Image returns the name of the image in the pod, or containerd's name for it, which may be another one of the same image.
func (v VM) Image() string {
	return cmp.Or(v.Status.GetImage().GetUserSpecifiedImage(), v.Status.GetImage().GetImage())
}

// annotationDomain is on pods of VirtualMachines, and has the VM's name.
const annotationDomain = "kubevirt.io/domain"

// IP returns the guest's address, empty if it has none.
func (v VM) IP() string {
	if v.Info.Network == nil {
		return ""
	}
	for _, ip := range v.Info.Network.PodIPs() {
		return ip.String()
	}
	return ""
}

// CPUs returns the number of the guest's CPUs.
func (v VM) CPUs() uint32 {
	c := v.Info.Spec.CPU
	return c.Sockets * c.Cores * c.Threads
}

// Uptime returns how long the VM has been running, or ran.
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

// Find returns the VM with NAME or NAMESPACE/NAME of its pod or its VirtualMachine, a prefix of its
// container's or its pod's ID, or libvirt's name. If several VMs match a name, Find
// returns the one that runs.
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
		return VM{}, fmt.Errorf("find VM %q: not on this node; \"nodevirt ps -a\" lists VMs", want)
	case 1:
		return fit[0], nil
	}
	var ids []string
	for _, v := range fit {
		ids = append(ids, fmt.Sprintf("%s/%s (%s)", v.Namespace(), v.Name(), cli.ShortID(v.Status.GetId())))
	}
	return VM{}, fmt.Errorf("find VM %q: matches several VMs: %s; use a container ID", want, strings.Join(ids, ", "))
}

const minID = 3

func (v VM) is(want string) bool {
	for _, name := range []string{v.Name(), v.Pod.GetAnnotations()[annotationDomain]} {
		if name != "" && (want == name || want == v.Namespace()+"/"+name) {
			return true
		}
	}
	if want != "" && want == v.Info.Domain.Name {
		return true
	}
	return len(want) >= minID &&
		(strings.HasPrefix(v.Status.GetId(), want) || strings.HasPrefix(v.Pod.GetId(), want))
}

// mayRun reports whether the guest runs, or may: its record cannot be used.
func (v VM) mayRun() bool {
	return v.runs() || v.Status.GetState() == runtimeapi.ContainerState_CONTAINER_UNKNOWN
}

func (v VM) runs() bool {
	return v.Status.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
}
