package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// What a VM of the benches has, in bytes. Under emulation QEMU keeps translated code beside the
// guest's memory.
const (
	guestMemory = 80 << 20
	overhead    = 256 << 20
)

// pod is a running pod, and the end that it was made through.
type pod struct {
	id     string
	config *cri.PodSandboxConfig
	by     cri.RuntimeServiceClient
	memory int64 // of its guests, in bytes

	// Of its containers.
	mounts  []*cri.Mount
	devices []*cri.Device
}

// podConfig is a pod as a kubelet asks for it.
func (r *rig) podConfig(name string) (*cri.PodSandboxConfig, error) {
	text, err := json.Marshal(r.NewPod(name))
	if err != nil {
		return nil, fmt.Errorf("describe pod %s: %w", name, err)
	}
	c := &cri.PodSandboxConfig{}
	if err := protojson.Unmarshal(text, c); err != nil {
		return nil, fmt.Errorf("describe pod %s: %w", name, err)
	}
	c.Linux.Overhead = &cri.LinuxContainerResources{MemoryLimitInBytes: overhead}
	return c, nil
}

// runPod runs a pod by a runtime handler.
func (r *rig) runPod(ctx context.Context, by cri.RuntimeServiceClient, name, handler string) (*pod, error) {
	config, err := r.podConfig(name)
	if err != nil {
		return nil, err
	}
	return runPod(ctx, by, config, handler)
}

func runPod(ctx context.Context, by cri.RuntimeServiceClient, config *cri.PodSandboxConfig, handler string) (*pod, error) {
	reply, err := by.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err != nil {
		return nil, fmt.Errorf("run pod %s: %w", config.Metadata.Name, err)
	}
	return &pod{id: reply.PodSandboxId, config: config, by: by, memory: guestMemory}, nil
}

// create makes a container, a VM's or an ordinary one.
func (p *pod) create(ctx context.Context, name, image string, command ...string) (id string, err error) {
	reply, err := p.by.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: p.id,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: name},
			Image:    &cri.ImageSpec{Image: image},
			Command:  command,
			LogPath:  name + "_0.log",
			Mounts:   p.mounts,
			Devices:  p.devices,
			Linux: &cri.LinuxContainerConfig{
				Resources: &cri.LinuxContainerResources{MemoryLimitInBytes: p.memory},
			},
		},
		SandboxConfig: p.config,
	})
	if err != nil {
		return "", fmt.Errorf("create container %s: %w", name, err)
	}
	return reply.ContainerId, nil
}

func (p *pod) start(ctx context.Context, id string) error {
	_, err := p.by.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: id})
	return err
}

// run is create and start.
func (p *pod) run(ctx context.Context, name, image string, command ...string) (id string, err error) {
	if id, err = p.create(ctx, name, image, command...); err != nil {
		return "", err
	}
	return id, p.start(ctx, id)
}

// end stops a container at once and removes it.
func (p *pod) end(ctx context.Context, id string) error {
	if _, err := p.by.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: id}); err != nil {
		return err
	}
	_, err := p.by.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: id})
	return err
}

// remove ends the pod with its containers.
func (p *pod) remove(ctx context.Context) error {
	_, stop := p.by.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.id})
	_, remove := p.by.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.id})
	return errors.Join(stop, remove)
}

// ip is the pod's address.
func (p *pod) ip(ctx context.Context) (string, error) {
	reply, err := p.by.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: p.id})
	if err != nil {
		return "", err
	}
	return reply.Status.GetNetwork().GetIp(), nil
}
