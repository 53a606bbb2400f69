package criwalk

import (
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// state is a subject's state.
type state string

// The states of a container and, from ready on, of a sandbox.
const (
	unknown  state = "unknown"
	created  state = "created"
	running  state = "running"
	exited   state = "exited"
	removed  state = "removed"
	ready    state = "ready"
	notReady state = "not ready"
)

// variants are the requests of one RPC, by what is particular to each.
type variants map[string]proto.Message

// rpc is a case: how an RPC is asked about a subject, by an id that may be shortened.
type rpc struct {
	ask func(s *subject, id string) variants
	// moves are the states that a subject leaves by it: the walk calls it there when it goes on.
	moves []state
	// differs are the states in which a VM is answered with another code, for a reason.
	differs []state
	// because is that reason.
	because string
}

// Reasons of several cases.
const (
	noAgent = "the guest has no agent to run a command"
)

// one is an RPC with one form of request.
func one(ask func(s *subject, id string) proto.Message) func(*subject, string) variants {
	return func(s *subject, id string) variants { return variants{"": ask(s, id)} }
}

// containerCases are the RPCs that concern containers.
func containerCases() map[string]rpc {
	return map[string]rpc{
		"CreateContainer": {
			ask:   one(func(s *subject, _ string) proto.Message { return s.request() }),
			moves: []state{unknown, removed},
		},
		"StartContainer": {
			ask:   one(func(_ *subject, id string) proto.Message { return &runtimeapi.StartContainerRequest{ContainerId: id} }),
			moves: []state{created},
		},
		"StopContainer": {
			ask: one(func(_ *subject, id string) proto.Message {
				return &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: 1}
			}),
			moves: []state{running},
		},
		"RemoveContainer": {
			ask:   one(func(_ *subject, id string) proto.Message { return &runtimeapi.RemoveContainerRequest{ContainerId: id} }),
			moves: []state{created, running, exited},
		},
		"ContainerStatus": {ask: func(_ *subject, id string) variants {
			return variants{
				"":        &runtimeapi.ContainerStatusRequest{ContainerId: id},
				"verbose": &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true},
			}
		}},
		"ListContainers": {ask: func(s *subject, id string) variants {
			return filters(s, id, func(f *runtimeapi.ContainerFilter) proto.Message {
				return &runtimeapi.ListContainersRequest{Filter: f}
			})
		}},
		"StreamContainers": {ask: func(s *subject, id string) variants {
			return filters(s, id, func(f *runtimeapi.ContainerFilter) proto.Message {
				return &runtimeapi.StreamContainersRequest{Filter: f}
			})
		}},
		"ContainerStats": {
			ask:     one(func(_ *subject, id string) proto.Message { return &runtimeapi.ContainerStatsRequest{ContainerId: id} }),
			differs: []state{created, exited}, because: "containerd has no stats of its own for what does not run; a VM's overlay is on disk",
		},
		"ListContainerStats": {ask: func(s *subject, id string) variants {
			return statsFilters(s, id, func(f *runtimeapi.ContainerStatsFilter) proto.Message {
				return &runtimeapi.ListContainerStatsRequest{Filter: f}
			})
		}},
		"StreamContainerStats": {ask: func(s *subject, id string) variants {
			return statsFilters(s, id, func(f *runtimeapi.ContainerStatsFilter) proto.Message {
				return &runtimeapi.StreamContainerStatsRequest{Filter: f}
			})
		}},
		"ReopenContainerLog": {
			ask: one(func(_ *subject, id string) proto.Message {
				return &runtimeapi.ReopenContainerLogRequest{ContainerId: id}
			}),
		},
		"UpdateContainerResources": {
			ask: one(func(_ *subject, id string) proto.Message {
				return &runtimeapi.UpdateContainerResourcesRequest{
					ContainerId: id, Linux: &runtimeapi.LinuxContainerResources{CpuShares: 512},
				}
			}),
		},
		"ExecSync": {
			ask: one(func(_ *subject, id string) proto.Message {
				return &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"true"}}
			}),
			differs: []state{running}, because: noAgent,
		},
		"Exec": {
			ask: one(func(_ *subject, id string) proto.Message {
				return &runtimeapi.ExecRequest{ContainerId: id, Cmd: []string{"true"}, Stdout: true}
			}),
			differs: []state{running}, because: noAgent,
		},
		"Attach": {
			ask: one(func(_ *subject, id string) proto.Message {
				return &runtimeapi.AttachRequest{ContainerId: id, Stdout: true}
			}),
		},
		"CheckpointContainer": {
			ask: one(func(_ *subject, id string) proto.Message {
				return &runtimeapi.CheckpointContainerRequest{ContainerId: id, Location: "/nowhere/checkpoint.tar"}
			}),
			differs: []state{created, running, exited}, because: "the ordinary one lacks criu",
		},
	}
}

func filters(s *subject, id string, request func(*runtimeapi.ContainerFilter) proto.Message) variants {
	own := map[string]string{"io.kubernetes.container.name": s.name}
	in := func(state runtimeapi.ContainerState) *runtimeapi.ContainerFilter {
		return &runtimeapi.ContainerFilter{Id: id, State: &runtimeapi.ContainerStateValue{State: state}}
	}
	return variants{
		"by id":                request(&runtimeapi.ContainerFilter{Id: id}),
		"by id and pod":        request(&runtimeapi.ContainerFilter{Id: id, PodSandboxId: s.pod.id}),
		"by id and short pod":  request(&runtimeapi.ContainerFilter{Id: id, PodSandboxId: s.pod.id[:min(13, len(s.pod.id))]}),
		"by id and wrong pod":  request(&runtimeapi.ContainerFilter{Id: id, PodSandboxId: "no-such-pod"}),
		"by id, label":         request(&runtimeapi.ContainerFilter{Id: id, LabelSelector: own}),
		"by id, wrong label":   request(&runtimeapi.ContainerFilter{Id: id, LabelSelector: map[string]string{"no": "such"}}),
		"by pod, label":        request(&runtimeapi.ContainerFilter{PodSandboxId: s.pod.id, LabelSelector: own}),
		"by id, created":       request(in(runtimeapi.ContainerState_CONTAINER_CREATED)),
		"by id, running":       request(in(runtimeapi.ContainerState_CONTAINER_RUNNING)),
		"by id, exited":        request(in(runtimeapi.ContainerState_CONTAINER_EXITED)),
		"by id, unknown state": request(in(runtimeapi.ContainerState_CONTAINER_UNKNOWN)),
	}
}

func statsFilters(s *subject, id string, request func(*runtimeapi.ContainerStatsFilter) proto.Message) variants {
	own := map[string]string{"io.kubernetes.container.name": s.name}
	return variants{
		"by id":               request(&runtimeapi.ContainerStatsFilter{Id: id}),
		"by id and pod":       request(&runtimeapi.ContainerStatsFilter{Id: id, PodSandboxId: s.pod.id}),
		"by id and wrong pod": request(&runtimeapi.ContainerStatsFilter{Id: id, PodSandboxId: "no-such-pod"}),
		"by pod, label":       request(&runtimeapi.ContainerStatsFilter{PodSandboxId: s.pod.id, LabelSelector: own}),
		"by id, wrong label":  request(&runtimeapi.ContainerStatsFilter{Id: id, LabelSelector: map[string]string{"no": "such"}}),
	}
}
