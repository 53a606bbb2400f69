//go:build faults

package faults

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// call is a CRI call of a pod's life.
type call struct {
	name string
	// usual is about how long it takes. Faults come within this time and a tenth more.
	usual time.Duration
	do    func(context.Context, *pod) error
	// ofContainer says that the call needs a container.
	ofContainer bool
}

// started is how many calls of life it takes until the guest runs, ending with which one its end
// begins, and podEnd the first one of the pod's.
const started, ending, podEnd = 3, 8, 10

// life is the life of a pod with a VM container as a kubelet leads it.
var life = []call{
	{"RunPodSandbox", 150 * time.Millisecond, func(ctx context.Context, p *pod) error {
		reply, err := suite.cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.config, RuntimeHandler: "vm"})
		p.id = reply.GetPodSandboxId()
		return err
	}, false},
	{"CreateContainer", 28 * time.Millisecond, func(ctx context.Context, p *pod) error {
		reply, err := suite.cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
			PodSandboxId: p.id, Config: p.guest, SandboxConfig: p.config,
		})
		p.container = reply.GetContainerId()
		return err
	}, false},
	{"StartContainer", 160 * time.Millisecond, func(ctx context.Context, p *pod) error {
		_, err := suite.cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: p.container})
		return err
	}, false},
	{"ContainerStatus", 2 * time.Millisecond, func(ctx context.Context, p *pod) error {
		_, err := suite.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: p.container, Verbose: true})
		return err
	}, false},
	{"ListContainers", 2 * time.Millisecond, func(ctx context.Context, _ *pod) error {
		_, err := suite.cri.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		return err
	}, false},
	{"PodSandboxStatus", 4 * time.Millisecond, func(ctx context.Context, p *pod) error {
		_, err := suite.cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id, Verbose: true})
		return err
	}, false},
	{"ListPodSandbox", 2 * time.Millisecond, func(ctx context.Context, _ *pod) error {
		_, err := suite.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		return err
	}, false},
	{"ListContainerStats", 8 * time.Millisecond, func(ctx context.Context, _ *pod) error {
		_, err := suite.cri.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
		return err
	}, false},
	{"StopContainer", 280 * time.Millisecond, func(ctx context.Context, p *pod) error {
		_, err := suite.cri.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: p.container})
		return err
	}, true},
	{"RemoveContainer", 8 * time.Millisecond, func(ctx context.Context, p *pod) error {
		_, err := suite.cri.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: p.container})
		return err
	}, true},
	{"StopPodSandbox", 180 * time.Millisecond, func(ctx context.Context, p *pod) error {
		_, err := suite.cri.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id})
		return err
	}, false},
	{"RemovePodSandbox", 30 * time.Millisecond, func(ctx context.Context, p *pod) error {
		_, err := suite.cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id})
		return err
	}, false},
}
