package criwalk

import (
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandboxCases are the RPCs that concern a pod. A subject's container runs in it.
func sandboxCases() map[string]rpc {
	return map[string]rpc{
		"RunPodSandbox": {
			ask:   one(func(s *subject, _ string) proto.Message { return s.pod.request() }),
			moves: []state{unknown, removed},
		},
		"StopPodSandbox": {
			ask:   one(func(_ *subject, id string) proto.Message { return &runtimeapi.StopPodSandboxRequest{PodSandboxId: id} }),
			moves: []state{ready},
		},
		"RemovePodSandbox": {
			ask: one(func(_ *subject, id string) proto.Message {
				return &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}
			}),
			moves: []state{ready, notReady},
		},
		"PodSandboxStatus": {ask: func(_ *subject, id string) variants {
			return variants{
				"":        &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id},
				"verbose": &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true},
			}
		}},
		"ListPodSandbox": {ask: func(s *subject, id string) variants {
			return podFilters(s, id, func(f *runtimeapi.PodSandboxFilter) proto.Message {
				return &runtimeapi.ListPodSandboxRequest{Filter: f}
			})
		}},
		"StreamPodSandboxes": {ask: func(s *subject, id string) variants {
			return podFilters(s, id, func(f *runtimeapi.PodSandboxFilter) proto.Message {
				return &runtimeapi.StreamPodSandboxesRequest{Filter: f}
			})
		}},
		"PodSandboxStats": {
			ask: one(func(_ *subject, id string) proto.Message { return &runtimeapi.PodSandboxStatsRequest{PodSandboxId: id} }),
		},
		"ListPodSandboxStats": {
			ask: one(func(_ *subject, id string) proto.Message {
				return &runtimeapi.ListPodSandboxStatsRequest{Filter: &runtimeapi.PodSandboxStatsFilter{Id: id}}
			}),
		},
		"StreamPodSandboxStats": {
			ask: one(func(_ *subject, id string) proto.Message {
				return &runtimeapi.StreamPodSandboxStatsRequest{Filter: &runtimeapi.PodSandboxStatsFilter{Id: id}}
			}),
		},
		"PortForward": {
			ask: one(func(_ *subject, id string) proto.Message {
				return &runtimeapi.PortForwardRequest{PodSandboxId: id, Port: []int32{80}}
			}),
		},
		"UpdatePodSandboxResources": {
			ask: one(func(_ *subject, id string) proto.Message {
				return &runtimeapi.UpdatePodSandboxResourcesRequest{
					PodSandboxId: id, Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 512 * mebibyte},
				}
			}),
		},
		"CheckpointPod": {
			ask:     one(func(_ *subject, id string) proto.Message { return &runtimeapi.CheckpointPodRequest{PodSandboxId: id} }),
			differs: []state{ready, notReady}, because: "containerd does not have the call",
		},
	}
}

func podFilters(s *subject, id string, request func(*runtimeapi.PodSandboxFilter) proto.Message) variants {
	uid := map[string]string{"io.kubernetes.pod.uid": s.pod.config.Metadata.Uid}
	in := func(state runtimeapi.PodSandboxState) *runtimeapi.PodSandboxFilter {
		return &runtimeapi.PodSandboxFilter{Id: id, State: &runtimeapi.PodSandboxStateValue{State: state}}
	}
	return variants{
		"by id":              request(&runtimeapi.PodSandboxFilter{Id: id}),
		"by label":           request(&runtimeapi.PodSandboxFilter{LabelSelector: uid}),
		"by id, wrong label": request(&runtimeapi.PodSandboxFilter{Id: id, LabelSelector: map[string]string{"no": "such"}}),
		"by id, ready":       request(in(runtimeapi.PodSandboxState_SANDBOX_READY)),
		"by id, not ready":   request(in(runtimeapi.PodSandboxState_SANDBOX_NOTREADY)),
	}
}

// imageCases are the RPCs that concern an image.
func imageCases() map[string]rpc {
	return map[string]rpc{
		"ImageStatus": {ask: func(s *subject, ref string) variants {
			return variants{
				"":        &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}},
				"by id":   &runtimeapi.ImageStatusRequest{Image: s.config.Image},
				"verbose": &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}, Verbose: true},
			}
		}},
		"ListImages": {ask: one(func(_ *subject, ref string) proto.Message {
			return &runtimeapi.ListImagesRequest{Filter: &runtimeapi.ImageFilter{Image: &runtimeapi.ImageSpec{Image: ref}}}
		})},
		"StreamImages": {ask: one(func(_ *subject, ref string) proto.Message {
			return &runtimeapi.StreamImagesRequest{Filter: &runtimeapi.ImageFilter{Image: &runtimeapi.ImageSpec{Image: ref}}}
		})},
		"PullImage": {
			ask: one(func(_ *subject, ref string) proto.Message {
				return &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}}
			}),
			moves: []state{removed},
		},
		"RemoveImage": {
			ask: one(func(_ *subject, ref string) proto.Message {
				return &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}}
			}),
			moves: []state{running},
		},
	}
}
