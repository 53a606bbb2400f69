package cri

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// runtimeStatus returns containerd's status with the runtime handler of VMs added.
// It has the features of the handler that containerd gets instead, which runs the
// sandboxes and the ordinary containers of VMs' pods.
func (c *call) runtimeStatus() error {
	f, err := c.receive()
	if err != nil {
		return err
	}
	reply, err := c.forward(f)
	if err != nil {
		return err
	}
	var s runtimeapi.StatusResponse
	if err := decode(reply, &s); err != nil {
		return err
	}
	ours := &runtimeapi.RuntimeHandler{Name: c.Handler, Features: &runtimeapi.RuntimeHandlerFeatures{}}
	for _, h := range s.GetRuntimeHandlers() {
		if h.GetName() == c.SandboxHandler && h.GetFeatures() != nil {
			ours.Features = h.GetFeatures()
		}
	}
	more, err := encode(&runtimeapi.StatusResponse{RuntimeHandlers: []*runtimeapi.RuntimeHandler{ours}})
	if err != nil {
		return err
	}
	return c.reply(append(reply, more...))
}
