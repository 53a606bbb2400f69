//go:build faults

package faults

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// The calls that lead a pod through its life.

func runPod() operation {
	return operation{
		name: "RunPodSandbox",
		do: func(ctx context.Context, c *criClient, _ target) (string, error) {
			reply, err := suite.cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: c.config, RuntimeHandler: "vm"})
			return reply.GetPodSandboxId(), err
		},
		answers: (*model).run,
		moves:   func(c *criClient, _ target, made string) { c.id, c.sandbox = made, ready },
		// Never given up: what containerd leaves then is a matter of TestGivenUp.
	}
}

func createVM(name string, answers, twice func(*model, target) codes.Code, attempt func(*criClient) uint32) operation {
	return operation{
		name: name, about: ofPod, answers: answers, twice: twice, absent: codes.NotFound,
		do: func(ctx context.Context, c *criClient, t target) (string, error) {
			return c.createVM(ctx, t.id, attempt(c), func(*runtimeapi.ContainerConfig) {})
		},
		moves: func(c *criClient, _ target, made string) { c.create(made, attempt(c)) },
		// As a kubelet does: by further attempts, until one is answered.
		settle: func(ctx context.Context, c *criClient, _ target) error {
			return converge(ctx, func(ctx context.Context) error {
				c.attempt++
				made, err := c.createVM(ctx, c.id, c.attempt+1, func(*runtimeapi.ContainerConfig) {})
				if err == nil {
					c.create(made, c.attempt+1)
				}
				return err
			})
		},
	}
}

// createNext asks for the attempt after the last one, createAgain for the last one.
func createNext() operation {
	return createVM("CreateContainer", (*model).createNext, (*model).createAgain, func(c *criClient) uint32 { return c.attempt + 1 })
}

func createAgain() operation {
	return createVM("CreateContainer again", (*model).createAgain, (*model).createAgain, func(c *criClient) uint32 { return c.attempt })
}

// createVM asks for a container of an attempt.
func (c *criClient) createVM(ctx context.Context, sandbox string, attempt uint32, change func(*runtimeapi.ContainerConfig)) (string, error) {
	guest := proto.CloneOf(c.guest)
	guest.Metadata.Attempt, guest.LogPath = attempt, fmt.Sprintf("guest_%d.log", attempt)
	change(guest)
	reply, err := suite.cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox, Config: guest, SandboxConfig: c.config,
	})
	return reply.GetContainerId(), err
}

// invalidVM is a CreateContainer that no state makes valid.
func invalidVM(what string, code codes.Code, change func(*runtimeapi.ContainerConfig)) operation {
	return operation{
		name: "CreateContainer " + what, about: ofPod, answers: always(code), absent: codes.NotFound,
		do: func(ctx context.Context, c *criClient, t target) (string, error) {
			return c.createVM(ctx, t.id, c.attempt+1, change)
		},
	}
}

func startVM() operation {
	return operation{
		name: "StartContainer", about: ofVM, absent: codes.NotFound,
		answers: func(m *model, t target) codes.Code {
			if t.container.state != created || m.sandbox != ready {
				return codes.Unknown
			}
			return codes.OK
		},
		do: func(ctx context.Context, _ *criClient, t target) (string, error) {
			_, err := suite.cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: t.id})
			return "", err
		},
		moves:  func(c *criClient, t target, _ string) { t.container.state = running; c.lives++ },
		settle: removedVM,
	}
}

func stopVM(timeout int64) operation {
	stop := func(ctx context.Context, _ *criClient, t target) (string, error) {
		_, err := suite.cri.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: t.id, Timeout: timeout})
		return "", err
	}
	return operation{
		name: fmt.Sprintf("StopContainer %d", timeout), about: ofVM, answers: always(codes.OK), do: stop,
		moves: func(c *criClient, t target, _ string) { c.stop(t.container) },
		settle: func(ctx context.Context, c *criClient, t target) error {
			_, err := stop(ctx, c, t)
			c.stop(t.container)
			return err
		},
	}
}

func removeVM() operation {
	return operation{
		name: "RemoveContainer", about: ofVM, answers: always(codes.OK),
		do: func(ctx context.Context, _ *criClient, t target) (string, error) {
			_, err := suite.cri.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: t.id})
			return "", err
		},
		moves:  func(c *criClient, t target, _ string) { c.remove(t.container) },
		settle: removedVM,
	}
}

// removedVM removes a container of which it is not certain how far a call went.
func removedVM(ctx context.Context, c *criClient, t target) error {
	_, err := suite.cri.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: t.id})
	c.remove(t.container)
	return err
}

func stopPod() operation {
	stop := func(ctx context.Context, _ *criClient, t target) (string, error) {
		_, err := suite.cri.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: t.id})
		return "", err
	}
	return operation{
		name: "StopPodSandbox", about: ofPod, answers: always(codes.OK), do: stop, races: codes.Unknown,
		moves: func(c *criClient, _ target, _ string) { c.stopPod() },
		settle: func(ctx context.Context, c *criClient, t target) error {
			_, err := stop(ctx, c, t)
			c.stopPod()
			return err
		},
	}
}

func removePod() operation {
	remove := func(ctx context.Context, _ *criClient, t target) (string, error) {
		_, err := suite.cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: t.id})
		return "", err
	}
	return operation{
		name: "RemovePodSandbox", about: ofPod, answers: always(codes.OK), do: remove, races: codes.Unknown,
		moves: func(c *criClient, _ target, _ string) { c.model = model{sandbox: absent} },
		settle: func(ctx context.Context, c *criClient, t target) error {
			_, err := remove(ctx, c, t)
			c.model = model{sandbox: absent}
			return err
		},
	}
}

// invalidPod is a RunPodSandbox that is refused.
func invalidPod(what string, answers func(*model, target) codes.Code, change func(*runtimeapi.RunPodSandboxRequest)) operation {
	return operation{
		name: "RunPodSandbox " + what, answers: answers, races: codes.FailedPrecondition,
		do: func(ctx context.Context, c *criClient, _ target) (string, error) {
			r := &runtimeapi.RunPodSandboxRequest{Config: proto.CloneOf(c.config), RuntimeHandler: "vm"}
			change(r)
			_, err := suite.cri.RunPodSandbox(ctx, r)
			return "", err
		},
	}
}

// refusals are the invalid requests.
func refusals() []operation {
	return []operation{
		invalidPod("with a VM spec that is no JSON", always(codes.InvalidArgument), func(r *runtimeapi.RunPodSandboxRequest) {
			r.Config.Annotations[vmspec.AnnotationVMI] = "{"
		}),
		invalidPod("with an unknown annotation", always(codes.InvalidArgument), func(r *runtimeapi.RunPodSandboxRequest) {
			r.Config.Annotations[vmspec.AnnotationPrefix+"no-such"] = "x"
		}),
		invalidPod("with an unknown handler", (*model).runByNone, func(r *runtimeapi.RunPodSandboxRequest) {
			r.RuntimeHandler = "no-such"
		}),
		invalidPod("without metadata", always(codes.Unknown), func(r *runtimeapi.RunPodSandboxRequest) {
			r.Config.Metadata = nil
		}),
		invalidPod("without a config", always(codes.Unknown), func(r *runtimeapi.RunPodSandboxRequest) {
			r.Config = nil
		}),
		invalidVM("of an image that is not there", codes.NotFound, func(g *runtimeapi.ContainerConfig) {
			g.Image.Image = "127.0.0.1:5000/no-such:1"
		}),
		invalidVM("with too little memory", codes.InvalidArgument, func(g *runtimeapi.ContainerConfig) {
			g.Linux.Resources.MemoryLimitInBytes = 1
		}),
		invalidVM("without metadata", codes.InvalidArgument, func(g *runtimeapi.ContainerConfig) { g.Metadata = nil }),
	}
}
