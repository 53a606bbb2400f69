package cri

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// guests are the ways into running guests; package guest's Guests.
type guests interface {
	CheckExec(id string, r *runtimeapi.ExecRequest) error
	ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (*runtimeapi.ExecSyncResponse, error)
	// Running returns the whole id of a container that runs.
	Running(id string) (wholeID string, err error)
	RunsIn(sandboxID string) bool
}

// streams creates URLs for streams into guests; package stream's Server.
type streams interface {
	Exec(r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error)
	Attach(r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error)
	PortForward(r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error)
}

// streamCalls are the calls that connect clients with guests.
type streamCalls struct {
	find       finder
	containers vmContainers
	guests     guests
	streams    streams
}

func (s *streamCalls) routes() map[string]route {
	return map[string]route{
		runtimeapi.RuntimeService_Exec_FullMethodName:        ofVM(s.containers, s.exec),
		runtimeapi.RuntimeService_ExecSync_FullMethodName:    ofVM(s.containers, s.execSync),
		runtimeapi.RuntimeService_Attach_FullMethodName:      ofVM(s.containers, s.attach),
		runtimeapi.RuntimeService_PortForward_FullMethodName: decoded(s.portForward),
	}
}

func (s *streamCalls) exec(_ context.Context, r *runtimeapi.ExecRequest) (proto.Message, error) {
	id, err := s.guests.Running(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := s.guests.CheckExec(id, r); err != nil {
		return nil, err
	}
	r.ContainerId = id
	return s.streams.Exec(r)
}

func (s *streamCalls) execSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (proto.Message, error) {
	id, err := s.guests.Running(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	return s.guests.ExecSync(ctx, id, r.GetCmd(), seconds(r.GetTimeout()))
}

func (s *streamCalls) attach(_ context.Context, r *runtimeapi.AttachRequest) (proto.Message, error) {
	id, err := s.guests.Running(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	r.ContainerId = id
	return s.streams.Attach(r)
}

// portForward answers for pods whose VM runs. For other pods, including those whose
// VM does not run yet, it forwards the call to containerd.
func (s *streamCalls) portForward(c *call, r *runtimeapi.PortForwardRequest, f frame) error {
	id, err := s.find.sandbox(c.ctx, r.GetPodSandboxId())
	if err != nil {
		return err
	}
	if id == "" || !s.guests.RunsIn(id) {
		return c.pass(f)
	}
	r.PodSandboxId = id
	reply, err := s.streams.PortForward(r)
	if err != nil {
		return err
	}
	return c.send(reply)
}
