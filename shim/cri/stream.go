package cri

import (
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (c *call) exec(r *runtimeapi.ExecRequest) (proto.Message, error) {
	id, err := c.Guests.Running(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	if err := c.Guests.CheckExec(id, r); err != nil {
		return nil, err
	}
	r.ContainerId = id
	return c.Streams.Exec(r)
}

func (c *call) execSync(r *runtimeapi.ExecSyncRequest) (proto.Message, error) {
	id, err := c.Guests.Running(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	return c.Guests.ExecSync(c.ctx, id, r.GetCmd(), seconds(r.GetTimeout()))
}

func (c *call) attach(r *runtimeapi.AttachRequest) (proto.Message, error) {
	id, err := c.Guests.Running(r.GetContainerId())
	if err != nil {
		return nil, err
	}
	r.ContainerId = id
	return c.Streams.Attach(r)
}

// portForward answers for pods whose VM runs. For other pods, including those whose
// VM does not run yet, it forwards the call to containerd.
func (c *call) portForward(r *runtimeapi.PortForwardRequest, f frame) error {
	id, err := c.sandboxOf(r.GetPodSandboxId())
	if err != nil {
		return err
	}
	if id == "" || !c.Guests.RunsIn(id) {
		return c.pass(f)
	}
	r.PodSandboxId = id
	reply, err := c.Streams.PortForward(r)
	if err != nil {
		return err
	}
	return c.send(reply)
}
