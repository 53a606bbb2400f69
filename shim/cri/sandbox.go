package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/metrics"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vminfo"
	"github.com/nodevirt/nodevirt/tracing"
)

// sandboxRecords are the records of VMs' sandboxes.
type sandboxRecords interface {
	Check(config *runtimeapi.PodSandboxConfig) error
	Intend(handler string, config *runtimeapi.PodSandboxConfig) (key string, err error)
	Drop(key string) error
	Resolve(key string)
	// Making is called before containerd makes a sandbox, and end after it.
	Making(ctx context.Context, config *runtimeapi.PodSandboxConfig) (end func())
	// Prepare changes a new sandbox before a guest is in it.
	Prepare(ctx context.Context, id string, config *runtimeapi.PodSandboxConfig) error
	Add(key string, made record.Sandbox) error
	Forget(id string) error
}

// sandboxEnder ends the VMs of a sandbox.
type sandboxEnder interface {
	StopIn(ctx context.Context, sandboxID string) error
	RemoveIn(ctx context.Context, sandboxID string) error
}

// sandboxReports returns what the status of a sandbox contains of its VMs.
type sandboxReports interface {
	Statuses(sandboxID string) []*runtimeapi.ContainerStatus
	Unfinished(sandboxID string) *vminfo.Making
}

// sandboxCalls are the calls about sandboxes.
type sandboxCalls struct {
	find      finder
	sandboxes sandboxes
	vms       sandboxEnder
	reports   sandboxReports
	pods      runtimeapi.RuntimeServiceClient // containerd's, with Go errors
	// handler is the runtime handler of VMs' sandboxes. sandboxHandler is the one that
	// containerd gets instead.
	handler, sandboxHandler string
	tracing                 *tracing.Tracing
	log                     *slog.Logger
}

func (s *sandboxCalls) routes() map[string]route {
	return map[string]route{
		runtimeapi.RuntimeService_RunPodSandbox_FullMethodName:    decoded(s.run),
		runtimeapi.RuntimeService_StopPodSandbox_FullMethodName:   decoded(s.stop),
		runtimeapi.RuntimeService_RemovePodSandbox_FullMethodName: decoded(s.remove),
		runtimeapi.RuntimeService_PodSandboxStatus_FullMethodName: decoded(s.status),
		runtimeapi.RuntimeService_ListPodSandbox_FullMethodName: amended(s.sandboxes,
			func(r *runtimeapi.ListPodSandboxResponse) { s.showHandlers(r.GetItems()) }),
		runtimeapi.RuntimeService_StreamPodSandboxes_FullMethodName: amended(s.sandboxes,
			func(r *runtimeapi.StreamPodSandboxesResponse) { s.showHandlers(r.GetPodSandboxes()) }),
	}
}

// run has containerd create a VM's sandbox as an ordinary one, and
// records that it belongs to a VM.
func (s *sandboxCalls) run(c *call, r *runtimeapi.RunPodSandboxRequest, f frame) error {
	if r.GetRuntimeHandler() != s.handler {
		return c.pass(f)
	}
	pod := r.GetConfig().GetMetadata()
	ctx, end := s.tracing.Start(c.ctx, tracing.Call{
		Name: "RunPodSandbox", Kind: trace.SpanKindServer, Link: r.GetConfig().GetAnnotations()[tracing.Annotation],
		Attributes: tracing.Pod(pod.GetNamespace(), pod.GetName(), pod.GetUid()),
	})
	c.ctx = ctx
	_, reply, err := s.makeVM(c, r)
	end(err)
	if err != nil {
		return err
	}
	return c.reply(reply)
}

// makeVM has containerd create a VM's sandbox, and records it. It returns the sandbox's ID and
// containerd's reply.
func (s *sandboxCalls) makeVM(c *call, r *runtimeapi.RunPodSandboxRequest) (id string, reply frame, err error) {
	begun := time.Now()
	if err := s.sandboxes.Check(r.GetConfig()); err != nil {
		return "", nil, err
	}
	r.RuntimeHandler = s.sandboxHandler
	request, err := encode(r)
	if err != nil {
		return "", nil, err
	}
	key, err := s.sandboxes.Intend(s.handler, r.GetConfig())
	if err != nil {
		return "", nil, err
	}
	end := s.sandboxes.Making(c.ctx, r.GetConfig())
	reply, err = c.forward(request)
	end()
	if err != nil {
		s.notMade(key, err)
		return "", nil, err
	}
	var made runtimeapi.RunPodSandboxResponse
	if err := decode(reply, &made); err != nil {
		return "", nil, err
	}
	sandbox := record.Sandbox{
		ID: made.GetPodSandboxId(), Handler: s.handler, Trace: tracing.Format(c.ctx),
		Timeline: []record.Phase{{Name: record.PhaseSandbox, Begun: begun, Took: time.Since(begun)}},
	}
	sandbox.Config.Value = r.GetConfig()
	err = s.sandboxes.Prepare(c.ctx, sandbox.ID, r.GetConfig())
	if err == nil {
		err = s.sandboxes.Add(key, sandbox)
	}
	if err != nil {
		err = errors.Join(err, s.removeAgain(c.ctx, made.GetPodSandboxId()))
		s.sandboxes.Resolve(key)
		return "", nil, err
	}
	return sandbox.ID, reply, nil
}

// notMade records that containerd answered with an error, or did not answer, in
// which case it may have created the sandbox.
func (s *sandboxCalls) notMade(key string, err error) {
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		s.sandboxes.Resolve(key)
		return
	}
	if err := s.sandboxes.Drop(key); err != nil {
		s.log.Error("cannot remove the record of a sandbox that was not created", "error", err)
	}
}

// removeAgain removes a sandbox that could not be recorded.
func (s *sandboxCalls) removeAgain(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	if _, err := s.pods.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
		return fmt.Errorf("remove sandbox %s after an error: %w", id, err)
	}
	return nil
}

// stop powers off the VMs of a sandbox, and has containerd stop the rest.
func (s *sandboxCalls) stop(c *call, r *runtimeapi.StopPodSandboxRequest, f frame) error {
	id, err := s.find.sandbox(c.ctx, r.GetPodSandboxId())
	if err != nil {
		return err
	}
	if id != "" {
		if err := s.vms.StopIn(c.ctx, id); err != nil {
			return err
		}
	}
	return c.pass(f)
}

// remove removes the VMs of a sandbox, and has containerd remove the sandbox.
func (s *sandboxCalls) remove(c *call, r *runtimeapi.RemovePodSandboxRequest, f frame) error {
	id, err := s.find.sandbox(c.ctx, r.GetPodSandboxId())
	if err != nil {
		return err
	}
	if id == "" {
		return s.removeOther(c, r.GetPodSandboxId(), f)
	}
	if err := s.vms.RemoveIn(c.ctx, id); err != nil {
		return err
	}
	reply, err := c.forward(f)
	if err != nil {
		return err
	}
	if err := s.sandboxes.Forget(id); err != nil {
		return err
	}
	// A container may have been created meanwhile. None is created from now on,
	// since the sandbox is removed from the records.
	if err := s.vms.RemoveIn(c.ctx, id); err != nil {
		return err
	}
	return c.reply(reply)
}

// removeOther forwards the removal of a sandbox that does not belong to a VM, or
// that turns out to do so meanwhile, since the answer to its creation was lost.
func (s *sandboxCalls) removeOther(c *call, id string, f frame) error {
	c.side = metrics.SideContainerd
	reply, err := c.forward(f)
	if err != nil {
		return err
	}
	if _, found := s.sandboxes.Handler(id); found {
		if err := s.sandboxes.Forget(id); err != nil {
			return err
		}
	}
	return c.handOn(reply)
}

// status returns containerd's status of a sandbox, with its VM containers.
func (s *sandboxCalls) status(c *call, r *runtimeapi.PodSandboxStatusRequest, f frame) error {
	reply, err := c.forward(f)
	if err != nil {
		return err
	}
	if !s.sandboxes.Any(r.GetPodSandboxId()) {
		return c.handOn(reply)
	}
	var answer runtimeapi.PodSandboxStatusResponse
	if err := decode(reply, &answer); err != nil {
		return err
	}
	handler, ok := s.sandboxes.Handler(answer.GetStatus().GetId())
	if !ok {
		return c.handOn(reply)
	}
	answer.Status.RuntimeHandler = handler
	if len(answer.ContainersStatuses) > 0 || answer.Timestamp != 0 {
		answer.ContainersStatuses = append(answer.ContainersStatuses, s.reports.Statuses(answer.Status.Id)...)
	}
	if making := s.reports.Unfinished(answer.Status.Id); r.GetVerbose() && making != nil {
		text, err := json.Marshal(making)
		if err != nil {
			return fmt.Errorf("report sandbox %s: %w", answer.Status.Id, err)
		}
		if answer.Info == nil {
			answer.Info = map[string]string{}
		}
		answer.Info[vminfo.MakingKey] = string(text)
	}
	return c.send(&answer)
}

// showHandlers restores the runtime handler that clients requested in VMs' sandboxes.
func (s *sandboxCalls) showHandlers(list []*runtimeapi.PodSandbox) {
	for _, p := range list {
		if handler, ok := s.sandboxes.Handler(p.GetId()); ok {
			p.RuntimeHandler = handler
		}
	}
}
