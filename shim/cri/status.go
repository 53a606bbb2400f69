package cri

import (
	"encoding/json"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/nodeproblems"
)

// statusCalls is the call for the runtime's status, which the kubelet asks for every few seconds.
type statusCalls struct {
	handler, sandboxHandler string
	heard                   func()
	problems                func() []nodeproblems.Problem
}

func (s *statusCalls) routes() map[string]route {
	return map[string]route{runtimeapi.RuntimeService_Status_FullMethodName: s.get}
}

// get returns containerd's status with the runtime handler of VMs added.
// It has the features of the handler that containerd gets instead, which runs the
// sandboxes and the ordinary containers of VMs' pods.
func (s *statusCalls) get(c *call) error {
	s.heard()
	f, err := c.receive()
	if err != nil {
		return err
	}
	reply, err := c.forward(f)
	if err != nil {
		return err
	}
	var answer runtimeapi.StatusResponse
	if err := decode(reply, &answer); err != nil {
		return err
	}
	ours := &runtimeapi.RuntimeHandler{Name: s.handler, Features: &runtimeapi.RuntimeHandlerFeatures{}}
	for _, h := range answer.GetRuntimeHandlers() {
		if h.GetName() == s.sandboxHandler && h.GetFeatures() != nil {
			ours.Features = h.GetFeatures()
		}
	}
	added := &runtimeapi.StatusResponse{RuntimeHandlers: []*runtimeapi.RuntimeHandler{ours}}
	var asked runtimeapi.StatusRequest
	if err := decode(f, &asked); err != nil {
		return err
	}
	if problems := s.problems(); asked.GetVerbose() && len(problems) > 0 {
		text, err := json.Marshal(problems)
		if err != nil {
			return err
		}
		added.Info = map[string]string{nodeproblems.Info: string(text)}
	}
	more, err := encode(added)
	if err != nil {
		return err
	}
	return c.reply(append(reply, more...))
}
