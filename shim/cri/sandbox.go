package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/metrics"
	"github.com/nodevirt/nodevirt/shim/vminfo"
)

// runPodSandbox has containerd create a VM's sandbox as an ordinary one, and
// records that it belongs to a VM.
func (c *call) runPodSandbox(r *runtimeapi.RunPodSandboxRequest, f frame) error {
	if r.GetRuntimeHandler() != c.Handler {
		return c.pass(f)
	}
	if err := c.Sandboxes.Check(r.GetConfig()); err != nil {
		return err
	}
	r.RuntimeHandler = c.SandboxHandler
	request, err := encode(r)
	if err != nil {
		return err
	}
	key, err := c.Sandboxes.Intend(c.Handler, r.GetConfig())
	if err != nil {
		return err
	}
	reply, err := c.forward(request)
	if err != nil {
		c.notMade(key, err)
		return err
	}
	var made runtimeapi.RunPodSandboxResponse
	if err := decode(reply, &made); err != nil {
		return err
	}
	if err := c.Sandboxes.Add(key, made.GetPodSandboxId(), c.Handler, r.GetConfig()); err != nil {
		err = errors.Join(err, c.removeAgain(made.GetPodSandboxId()))
		c.Sandboxes.Resolve(key)
		return err
	}
	return c.reply(reply)
}

// notMade records that containerd answered with an error, or did not answer, in
// which case it may have created the sandbox.
func (c *call) notMade(key string, err error) {
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		c.Sandboxes.Resolve(key)
		return
	}
	if err := c.Sandboxes.Drop(key); err != nil {
		c.Logger.Error("cannot remove the record of a sandbox that was not created", "error", err)
	}
}

// removeAgain removes a sandbox that could not be recorded.
func (c *call) removeAgain(id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), 20*time.Second)
	defer cancel()
	pods := runtimeapi.NewRuntimeServiceClient(Native(c.Backend))
	if _, err := pods.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
		return fmt.Errorf("remove sandbox %s after an error: %w", id, err)
	}
	return nil
}

// sandboxOf asks containerd for the full ID of a sandbox, which may be given by a
// prefix. It returns "" if the sandbox does not belong to a VM or does not exist.
func (c *call) sandboxOf(id string) (string, error) {
	if id == "" || !c.Sandboxes.Any(id) {
		return "", nil
	}
	if _, ok := c.Sandboxes.Handler(id); ok {
		return id, nil
	}
	pods := runtimeapi.NewRuntimeServiceClient(c.Backend)
	reply, err := pods.PodSandboxStatus(c.ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if status.Code(err) == codes.NotFound {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	whole := reply.GetStatus().GetId()
	if _, ok := c.Sandboxes.Handler(whole); !ok {
		return "", nil
	}
	return whole, nil
}

func (c *call) stopPodSandbox(r *runtimeapi.StopPodSandboxRequest, f frame) error {
	id, err := c.sandboxOf(r.GetPodSandboxId())
	if err != nil {
		return err
	}
	if id != "" {
		if err := c.Containers.StopIn(c.ctx, id); err != nil {
			return err
		}
	}
	return c.pass(f)
}

func (c *call) removePodSandbox(r *runtimeapi.RemovePodSandboxRequest, f frame) error {
	id, err := c.sandboxOf(r.GetPodSandboxId())
	if err != nil {
		return err
	}
	if id == "" {
		return c.removeOther(r.GetPodSandboxId(), f)
	}
	if err := c.Containers.RemoveIn(c.ctx, id); err != nil {
		return err
	}
	reply, err := c.forward(f)
	if err != nil {
		return err
	}
	if err := c.Sandboxes.Forget(id); err != nil {
		return err
	}
	// A container may have been created meanwhile. None is created from now on,
	// since the sandbox is removed from the records.
	if err := c.Containers.RemoveIn(c.ctx, id); err != nil {
		return err
	}
	return c.reply(reply)
}

// removeOther forwards the removal of a sandbox that does not belong to a VM, or
// that turns out to do so meanwhile, since the answer to its creation was lost.
func (c *call) removeOther(id string, f frame) error {
	c.side = metrics.SideContainerd
	reply, err := c.forward(f)
	if err != nil {
		return err
	}
	if _, found := c.Sandboxes.Handler(id); found {
		if err := c.Sandboxes.Forget(id); err != nil {
			return err
		}
	}
	return c.handOn(reply)
}

func (c *call) podSandboxStatus(r *runtimeapi.PodSandboxStatusRequest, f frame) error {
	reply, err := c.forward(f)
	if err != nil {
		return err
	}
	if !c.Sandboxes.Any(r.GetPodSandboxId()) {
		return c.handOn(reply)
	}
	var s runtimeapi.PodSandboxStatusResponse
	if err := decode(reply, &s); err != nil {
		return err
	}
	handler, ok := c.Sandboxes.Handler(s.GetStatus().GetId())
	if !ok {
		return c.handOn(reply)
	}
	s.Status.RuntimeHandler = handler
	if len(s.ContainersStatuses) > 0 || s.Timestamp != 0 {
		s.ContainersStatuses = append(s.ContainersStatuses, c.Reports.Statuses(s.Status.Id)...)
	}
	if making := c.Reports.Unfinished(s.Status.Id); r.GetVerbose() && making != nil {
		text, err := json.Marshal(making)
		if err != nil {
			return fmt.Errorf("report sandbox %s: %w", s.Status.Id, err)
		}
		if s.Info == nil {
			s.Info = map[string]string{}
		}
		s.Info[vminfo.MakingKey] = string(text)
	}
	return c.send(&s)
}

// showHandlers restores the runtime handler that clients requested in VMs' sandboxes.
func (c *call) showHandlers(list []*runtimeapi.PodSandbox) {
	for _, p := range list {
		if handler, ok := c.Sandboxes.Handler(p.GetId()); ok {
			p.RuntimeHandler = handler
		}
	}
}
