package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/background"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/witness"
)

// lost finds the guests that run and that no record explains: the record is gone, cannot be used, is another
// root's, or says that the VM does not run. Each is entered as a container whose record cannot be used, so that
// nothing of it is deleted, released or handed out, and so that clients see it. It returns the records without those
// of such guests.
func (c *recovery) lost(ctx context.Context, containers []record.Container) ([]record.Container, error) {
	processes, err := c.witness.Processes()
	if err != nil {
		return nil, err
	}
	for _, p := range processes {
		if !p.Emulator {
			continue
		}
		owner := slices.IndexFunc(containers, func(r record.Container) bool { return p.Is(identityOf(r)) })
		switch {
		case owner < 0:
			if err := c.enterLost(ctx, p); err != nil {
				return nil, err
			}
		case !mayRun(containers[owner]):
			r := containers[owner]
			containers = slices.Delete(slices.Clone(containers), owner, owner+1)
			c.enterRefused(r, p, fmt.Errorf("it says that the VM is %s, but %s", r.State, runs(p)))
		}
	}
	return containers, nil
}

// mayRun reports whether a VM's QEMU may be there by its record.
func mayRun(r record.Container) bool {
	return r.State == record.Starting || r.State == record.Running || r.Unclean
}

// runs says what runs, and how to end it.
func runs(p witness.Process) string {
	if p.Domain == "" {
		return fmt.Sprintf("its QEMU, process %d, runs: shut the guest down from inside, or power it off with \"kill %[1]d\"", p.PID)
	}
	return fmt.Sprintf("its QEMU, process %d, runs as domain %s: shut the guest down with \"virsh shutdown %[2]s\", "+
		"or power it off with \"virsh destroy %[2]s\", or with \"kill %[1]d\" if libvirt does not know it", p.PID, p.Domain)
}

// enterLost enters a guest of which there is no record that can be used.
func (c *recovery) enterLost(ctx context.Context, p witness.Process) error {
	if p.Container == "" {
		// QEMU is placed before its guest's first instruction. Its user ID and its devices are in use while it is there.
		c.log.Error("a QEMU that is not in a VM's cgroup has no record", "pid", p.PID, "domain", p.Domain,
			"remedy", fmt.Sprintf("end it with virsh destroy %s, or with kill %d", p.Domain, p.PID))
		return nil
	}
	refused, known := c.refused[p.Container]
	r, reason := refused.Container, refused.Err
	if !known {
		r, reason = record.Container{ID: p.Container}, errors.New("it is lost")
	}
	if r.SandboxID == "" || r.Sandbox.Value.GetMetadata() == nil {
		sandbox, found, err := c.sandboxes.Find(ctx, p.Group, p.Domain)
		if err != nil {
			return err
		}
		if found {
			r.SandboxID, r.Sandbox = sandbox.ID, sandbox.Config
		}
	}
	v := c.enterRefused(r, p, fmt.Errorf("%w, and %s", reason, runs(p)))
	if !known {
		c.awaitLost(v, p)
	}
	return nil
}

// enterRefused enters a guest that runs as a container whose record cannot be used.
func (c *recovery) enterRefused(r record.Container, p witness.Process, reason error) *table.VM {
	c.log.Error("a guest runs that its record does not explain, and is left alone", "container", r.ID, "pid", p.PID,
		"domain", p.Domain, "error", reason, "remedy", `see "A guest that libvirt or its record has lost" in docs/node.md`)
	r.State, r.Reason, r.Message = record.Unknown, "RecordRefused", reason.Error()
	r.Domain.PID = p.PID
	if r.Domain.Name == "" {
		r.Domain.Name, r.Domain.UUID = p.Domain, p.UUID
	}
	if r.Domain.UID == 0 {
		r.Domain.UID, r.Domain.GID = p.UID, p.UID
	}
	r.Spec.Disks, r.Disks = nil, nil
	if r.Config.Value.GetMetadata() == nil {
		r.Config.Value = configOf(r.Sandbox.Value)
	}
	if r.CreatedAt.IsZero() {
		r.CreatedAt = time.Now()
	}
	v := c.table.RefuseContainer(r, reason)
	if _, known := c.table.Sandbox(r.SandboxID); !known && r.SandboxID != "" && r.Sandbox.Value.GetMetadata() != nil {
		// The pod's removal must not pass the guest by.
		c.table.RecoverSandbox(record.Sandbox{ID: r.SandboxID, Handler: c.handler, CreatedAt: r.CreatedAt, Config: r.Sandbox})
	}
	return v
}

// lostName is the name of a VM's container, if it is lost.
const lostName = "vm"

// configOf is what is known of a container whose record is lost. The kubelet finds the pod by the labels.
func configOf(pod *runtimeapi.PodSandboxConfig) *runtimeapi.ContainerConfig {
	meta := pod.GetMetadata()
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: lostName}, Image: &runtimeapi.ImageSpec{},
		Labels: map[string]string{
			"io.kubernetes.container.name": lostName, "io.kubernetes.pod.name": meta.GetName(),
			"io.kubernetes.pod.namespace": meta.GetNamespace(), "io.kubernetes.pod.uid": meta.GetUid(),
		},
	}
}

// lostPause is the time between two attempts to remove what a lost guest left.
var lostPause = background.Pause{First: time.Second, Limit: time.Minute}

// awaitLost removes what a guest without a record left, once its QEMU has ended.
func (c *recovery) awaitLost(v *table.VM, p witness.Process) {
	c.tasks.Retry(lostPause, nil, func(ctx context.Context) bool {
		if err := c.witness.AwaitEnd(ctx, p); err != nil {
			return false
		}
		err := c.removeLost(ctx, v)
		if err != nil && ctx.Err() == nil {
			c.log.Warn("removing what a guest without a record left failed, retrying", "container", v.Record().ID, "error", err)
		}
		return err == nil
	})
}

func (c *recovery) removeLost(ctx context.Context, v *table.VM) error {
	r := v.Record()
	if _, there, err := qemuOf(c.witness, identityOf(r)); err != nil || there {
		return errors.Join(err, errIf(there, errMayRun))
	}
	ctx, cancel := context.WithTimeout(ctx, undoTime)
	defer cancel()
	if err := c.removeLeft(ctx, r.ID, v); err != nil {
		return err
	}
	if r.Sandbox.Value != nil {
		// The last: dnsmasq and other helpers are in it.
		if err := c.groups.Remove(r); err != nil {
			return err
		}
	}
	c.log.Info("a guest without a record has ended, and what it left is removed", "container", r.ID)
	return nil
}

func errIf(is bool, err error) error {
	if is {
		return err
	}
	return nil
}
