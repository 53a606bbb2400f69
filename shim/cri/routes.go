package cri

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// routes returns the routes of the methods that concern VMs.
func routes() map[string]route {
	return map[string]route{
		runtimeapi.RuntimeService_Status_FullMethodName: (*call).runtimeStatus,

		runtimeapi.RuntimeService_RunPodSandbox_FullMethodName:    decoded((*call).runPodSandbox),
		runtimeapi.RuntimeService_StopPodSandbox_FullMethodName:   decoded((*call).stopPodSandbox),
		runtimeapi.RuntimeService_RemovePodSandbox_FullMethodName: decoded((*call).removePodSandbox),
		runtimeapi.RuntimeService_PodSandboxStatus_FullMethodName: decoded((*call).podSandboxStatus),
		runtimeapi.RuntimeService_ListPodSandbox_FullMethodName: amended(
			func(c *call, r *runtimeapi.ListPodSandboxResponse) { c.showHandlers(r.GetItems()) }),
		runtimeapi.RuntimeService_StreamPodSandboxes_FullMethodName: amended(
			func(c *call, r *runtimeapi.StreamPodSandboxesResponse) { c.showHandlers(r.GetPodSandboxes()) }),

		runtimeapi.RuntimeService_PodSandboxStats_FullMethodName: amended(
			func(c *call, r *runtimeapi.PodSandboxStatsResponse) { c.Reports.AddToPodStats(r.GetStats()) }),
		runtimeapi.RuntimeService_ListPodSandboxStats_FullMethodName: amended(
			func(c *call, r *runtimeapi.ListPodSandboxStatsResponse) {
				each(r.GetStats(), c.Reports.AddToPodStats)
			}),
		runtimeapi.RuntimeService_StreamPodSandboxStats_FullMethodName: amended(
			func(c *call, r *runtimeapi.StreamPodSandboxStatsResponse) {
				each(r.GetPodSandboxStats(), c.Reports.AddToPodStats)
			}),
		runtimeapi.RuntimeService_ListPodSandboxMetrics_FullMethodName: amended(
			func(c *call, r *runtimeapi.ListPodSandboxMetricsResponse) {
				each(r.GetPodMetrics(), c.Reports.AddToPodMetrics)
			}),
		runtimeapi.RuntimeService_StreamPodSandboxMetrics_FullMethodName: amended(
			func(c *call, r *runtimeapi.StreamPodSandboxMetricsResponse) {
				each(r.GetPodSandboxMetrics(), c.Reports.AddToPodMetrics)
			}),

		runtimeapi.RuntimeService_CreateContainer_FullMethodName: decoded((*call).createContainer),
		runtimeapi.RuntimeService_StartContainer_FullMethodName:  ofMachine((*call).startContainer),
		runtimeapi.RuntimeService_StopContainer_FullMethodName:   ofMachine((*call).stopContainer),
		runtimeapi.RuntimeService_RemoveContainer_FullMethodName: ofMachine((*call).removeContainer),
		runtimeapi.RuntimeService_ContainerStatus_FullMethodName: ofMachine((*call).containerStatus),
		runtimeapi.RuntimeService_ReopenContainerLog_FullMethodName: ofMachine(
			func(c *call, r *runtimeapi.ReopenContainerLogRequest) (proto.Message, error) {
				return &runtimeapi.ReopenContainerLogResponse{}, c.Containers.ReopenLog(r.GetContainerId())
			}),
		runtimeapi.RuntimeService_ContainerStats_FullMethodName: ofMachine(
			func(c *call, r *runtimeapi.ContainerStatsRequest) (proto.Message, error) {
				stats, err := c.Reports.Stats(r.GetContainerId())
				return &runtimeapi.ContainerStatsResponse{Stats: stats}, err
			}),

		runtimeapi.RuntimeService_ListContainers_FullMethodName: appended(
			func(c *call, r *runtimeapi.ListContainersRequest) proto.Message {
				return &runtimeapi.ListContainersResponse{Containers: c.Reports.List(r.GetFilter())}
			}),
		runtimeapi.RuntimeService_StreamContainers_FullMethodName: appended(
			func(c *call, r *runtimeapi.StreamContainersRequest) proto.Message {
				return &runtimeapi.StreamContainersResponse{Containers: c.Reports.List(r.GetFilter())}
			}),
		runtimeapi.RuntimeService_ListContainerStats_FullMethodName: appended(
			func(c *call, r *runtimeapi.ListContainerStatsRequest) proto.Message {
				return &runtimeapi.ListContainerStatsResponse{Stats: c.Reports.ListStats(r.GetFilter())}
			}),
		runtimeapi.RuntimeService_StreamContainerStats_FullMethodName: appended(
			func(c *call, r *runtimeapi.StreamContainerStatsRequest) proto.Message {
				return &runtimeapi.StreamContainerStatsResponse{ContainerStats: c.Reports.ListStats(r.GetFilter())}
			}),
		runtimeapi.RuntimeService_GetContainerEvents_FullMethodName: (*call).containerEvents,

		runtimeapi.RuntimeService_Exec_FullMethodName:        ofMachine((*call).exec),
		runtimeapi.RuntimeService_ExecSync_FullMethodName:    ofMachine((*call).execSync),
		runtimeapi.RuntimeService_Attach_FullMethodName:      ofMachine((*call).attach),
		runtimeapi.RuntimeService_PortForward_FullMethodName: decoded((*call).portForward),

		runtimeapi.RuntimeService_UpdateContainerResources_FullMethodName: ofMachine(
			func(c *call, r *runtimeapi.UpdateContainerResourcesRequest) (proto.Message, error) {
				return &runtimeapi.UpdateContainerResourcesResponse{}, c.Containers.Update(c.ctx, r.GetContainerId(), r.GetLinux())
			}),
		runtimeapi.RuntimeService_CheckpointContainer_FullMethodName: refused[runtimeapi.CheckpointContainerRequest](
			"a machine has no checkpoint of a container's kind"),
	}
}

// message is a pointer to a type of protobuf message.
type message[T any] interface {
	*T
	proto.Message
}

// decoded is the route of a unary method whose request handle examines. handle also
// gets the frame, to forward it unchanged.
func decoded[T any, M message[T]](handle func(*call, M, frame) error) route {
	return func(c *call) error {
		f, err := c.receive()
		if err != nil {
			return err
		}
		request := M(new(T))
		if err := decode(f, request); err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		return handle(c, request, f)
	}
}

// ofContainer is a request that names a container.
type ofContainer[T any] interface {
	message[T]
	GetContainerId() string
}

// ofMachine answers calls for VM containers and forwards calls for other containers.
func ofMachine[T any, M ofContainer[T]](answer func(*call, M) (proto.Message, error)) route {
	return decoded(func(c *call, request M, f frame) error {
		if !c.Containers.Has(request.GetContainerId()) {
			return c.pass(f)
		}
		reply, err := answer(c, request)
		if err != nil {
			return err
		}
		return c.send(reply)
	})
}

// refused rejects calls for VM containers with a reason, and forwards calls for other containers.
func refused[T any, M ofContainer[T]](why string) route {
	return ofMachine(func(_ *call, request M) (proto.Message, error) {
		return nil, status.Error(codes.Unimplemented, fmt.Sprintf("container %q is a virtual machine: %s", request.GetContainerId(), why))
	})
}

// appended forwards a call, unary or with a stream of replies, and adds the VMs'
// part. If there is none, the replies stay unchanged.
func appended[T any, M message[T]](ours func(*call, M) proto.Message) route {
	return decoded(func(c *call, request M, f frame) error {
		backend, err := c.ask(f)
		if err != nil {
			return err
		}
		defer backend.cancel(nil)
		more, err := encode(ours(c, request))
		if err != nil {
			return err
		}
		if len(more) == 0 {
			return c.replies(backend, c.handOn)
		}
		// The last reply is held back: a unary call has only one, which the shim's
		// part must be merged into.
		var held *frame
		err = c.replies(backend, func(f frame) error {
			last := held
			held = &f
			if last == nil {
				return nil
			}
			return c.reply(*last)
		})
		if err != nil {
			return err
		}
		if held != nil { // else a stream without replies
			more = append(*held, more...)
		}
		return c.reply(more)
	})
}

// amended forwards a call, unary or with a stream of replies, and changes VMs'
// sandboxes in the replies. If there are none, the replies stay unchanged.
func amended[T any, M message[T]](change func(*call, M)) route {
	return func(c *call) error {
		if !c.Sandboxes.Any("") {
			return c.passStream()
		}
		f, err := c.receive()
		if err != nil {
			return err
		}
		backend, err := c.ask(f)
		if err != nil {
			return err
		}
		defer backend.cancel(nil)
		return c.replies(backend, func(f frame) error {
			reply := M(new(T))
			if err := decode(f, reply); err != nil {
				return err
			}
			change(c, reply)
			return c.send(reply)
		})
	}
}

func each[T any](all []T, do func(T)) {
	for _, v := range all {
		do(v)
	}
}

func (c *call) send(m proto.Message) error {
	f, err := encode(m)
	if err != nil {
		return err
	}
	return c.reply(f)
}

// notVM reports whether an error means that the call concerns containerd alone.
func notVM(err error) bool { return errors.Is(err, vmerrors.ErrNotVM) }
