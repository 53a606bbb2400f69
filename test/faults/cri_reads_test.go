//go:build faults

package faults

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The calls that ask, and those that change no state of the model's.

// vmCalls are about VM containers.
func vmCalls() []operation {
	return []operation{
		{
			name: "ContainerStatus", about: ofVM, answers: always(codes.OK), absent: codes.NotFound,
			do: func(ctx context.Context, _ *criClient, t target) (string, error) {
				reply, err := suite.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: t.id, Verbose: true})
				if err == nil && t.container != nil && reply.GetStatus().GetState() != t.container.state {
					err = wrong{fmt.Errorf("it is %s; the model has %s", reply.GetStatus().GetState(), t.container.state)}
				}
				return "", err
			},
		},
		list("ListContainers", ofVM, func(ctx context.Context, id string) (int, error) {
			reply, err := suite.cri.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: id}})
			return len(reply.GetContainers()), err
		}),
		list("StreamContainers", ofVM, func(ctx context.Context, id string) (int, error) {
			s, err := suite.cri.StreamContainers(ctx, &runtimeapi.StreamContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: id}})
			return received(s, err, func(r *runtimeapi.StreamContainersResponse) int { return len(r.GetContainers()) })
		}),
		plain("ContainerStats", ofVM, always(codes.OK), codes.NotFound, func(ctx context.Context, id string) error {
			_, err := suite.cri.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: id})
			return err
		}),
		list("ListContainerStats", ofVM, func(ctx context.Context, id string) (int, error) {
			reply, err := suite.cri.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{Filter: &runtimeapi.ContainerStatsFilter{Id: id}})
			return len(reply.GetStats()), err
		}),
		list("StreamContainerStats", ofVM, func(ctx context.Context, id string) (int, error) {
			s, err := suite.cri.StreamContainerStats(ctx, &runtimeapi.StreamContainerStatsRequest{Filter: &runtimeapi.ContainerStatsFilter{Id: id}})
			return received(s, err, func(r *runtimeapi.StreamContainerStatsResponse) int { return len(r.GetContainerStats()) })
		}),
		plain("UpdateContainerResources", ofVM, always(codes.OK), codes.NotFound, func(ctx context.Context, id string) error {
			return update(ctx, id, &runtimeapi.LinuxContainerResources{CpuShares: 512})
		}),
		plain("UpdateContainerResources with too little memory", ofVM, byState(codes.InvalidArgument, codes.OutOfRange, codes.OK),
			codes.NotFound, func(ctx context.Context, id string) error {
				return update(ctx, id, &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 1})
			}),
		plain("ReopenContainerLog", ofVM, byState(codes.Unknown, codes.OK, codes.Unknown), codes.NotFound,
			func(ctx context.Context, id string) error {
				_, err := suite.cri.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
				return err
			}),
		plain("ExecSync", ofVM, byState(codes.Unknown, codes.FailedPrecondition, codes.Unknown), codes.NotFound,
			func(ctx context.Context, id string) error {
				// Without a timeout it would wait for a guest that has just started.
				_, err := suite.cri.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"true"}, Timeout: 60})
				return err
			}),
		plain("Exec", ofVM, byState(codes.Unknown, codes.FailedPrecondition, codes.Unknown), codes.NotFound,
			func(ctx context.Context, id string) error {
				_, err := suite.cri.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"true"}, Stdout: true})
				return err
			}),
		plain("Attach", ofVM, byState(codes.Unknown, codes.OK, codes.Unknown), codes.NotFound,
			func(ctx context.Context, id string) error {
				_, err := suite.cri.Attach(ctx, &runtimeapi.AttachRequest{ContainerId: id, Stdout: true})
				return err
			}),
		plain("CheckpointContainer", ofVM, byState(codes.FailedPrecondition, codes.InvalidArgument, codes.FailedPrecondition), codes.Unknown, func(ctx context.Context, id string) error {
			_, err := suite.cri.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{ContainerId: id, Location: "/nowhere/checkpoint.tar"})
			return err
		}),
	}
}

func update(ctx context.Context, id string, r *runtimeapi.LinuxContainerResources) error {
	_, err := suite.cri.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: r})
	return err
}

// podCalls are about pods.
func podCalls() []operation {
	return []operation{
		{
			name: "PodSandboxStatus", about: ofPod, answers: always(codes.OK), absent: codes.NotFound,
			do: func(ctx context.Context, c *criClient, t target) (string, error) {
				reply, err := suite.cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: t.id, Verbose: true})
				if is := reply.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY; err == nil && is != (c.sandbox == ready) {
					err = wrong{fmt.Errorf("it is %s; the model has %s", reply.GetStatus().GetState(), c.sandbox)}
				}
				return "", err
			},
		},
		list("ListPodSandbox", ofPod, func(ctx context.Context, id string) (int, error) {
			reply, err := suite.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{Id: id}})
			return len(reply.GetItems()), err
		}),
		list("StreamPodSandboxes", ofPod, func(ctx context.Context, id string) (int, error) {
			s, err := suite.cri.StreamPodSandboxes(ctx, &runtimeapi.StreamPodSandboxesRequest{Filter: &runtimeapi.PodSandboxFilter{Id: id}})
			return received(s, err, func(r *runtimeapi.StreamPodSandboxesResponse) int { return len(r.GetPodSandboxes()) })
		}),
		plain("PodSandboxStats", ofPod, bySandbox(codes.OK, codes.Unavailable), codes.NotFound,
			func(ctx context.Context, id string) error {
				_, err := suite.cri.PodSandboxStats(ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: id})
				return err
			}),
		plain("ListPodSandboxStats", ofPod, always(codes.OK), codes.OK, func(ctx context.Context, id string) error {
			_, err := suite.cri.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{Filter: &runtimeapi.PodSandboxStatsFilter{Id: id}})
			return err
		}),
		plain("PortForward", ofPod, bySandbox(codes.OK, codes.Unknown), codes.NotFound, func(ctx context.Context, id string) error {
			_, err := suite.cri.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: id, Port: []int32{80}})
			return err
		}),
		plain("CheckpointPod", ofPod, byVM(codes.InvalidArgument, codes.FailedPrecondition), codes.Unimplemented, func(ctx context.Context, id string) error {
			_, err := suite.cri.CheckpointPod(ctx, &runtimeapi.CheckpointPodRequest{PodSandboxId: id})
			return err
		}),
		plain("UpdatePodSandboxResources", ofPod, always(codes.OK), codes.NotFound, func(ctx context.Context, id string) error {
			_, err := suite.cri.UpdatePodSandboxResources(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{
				PodSandboxId: id, Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 512 << 20},
			})
			return err
		}),
	}
}

// nodeCalls are about all at once.
func nodeCalls() []operation {
	all := func(name string, do func(ctx context.Context) error) operation {
		return plain(name, ofNode, always(codes.OK), codes.OK, func(ctx context.Context, _ string) error { return do(ctx) })
	}
	return []operation{
		all("Status", func(ctx context.Context) error {
			_, err := suite.cri.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
			return err
		}),
		all("ListContainers of all", func(ctx context.Context) error {
			_, err := suite.cri.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
			return err
		}),
		all("ListPodSandbox of all", func(ctx context.Context) error {
			_, err := suite.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
			return err
		}),
		all("ListContainerStats of all", func(ctx context.Context) error {
			_, err := suite.cri.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
			return err
		}),
		all("ListPodSandboxStats of all", func(ctx context.Context) error {
			_, err := suite.cri.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{})
			return err
		}),
		all("ListPodSandboxMetrics", func(ctx context.Context) error {
			_, err := suite.cri.ListPodSandboxMetrics(ctx, &runtimeapi.ListPodSandboxMetricsRequest{})
			return err
		}),
	}
}
