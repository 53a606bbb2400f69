package cri

import (
	"context"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// containerReports returns the statuses and stats of VM containers.
type containerReports interface {
	List(f *runtimeapi.ContainerFilter) []*runtimeapi.Container
	Status(id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
	Stats(id string) (*runtimeapi.ContainerStats, error)
	ListStats(f *runtimeapi.ContainerStatsFilter) []*runtimeapi.ContainerStats
}

// containerReportCalls are the calls that read the statuses and stats of containers.
type containerReportCalls struct {
	containers vmContainers
	reports    containerReports
}

func (s *containerReportCalls) routes() map[string]route {
	return map[string]route{
		runtimeapi.RuntimeService_ContainerStatus_FullMethodName: ofVM(s.containers, s.status),
		runtimeapi.RuntimeService_ContainerStats_FullMethodName:  ofVM(s.containers, s.stats),
		runtimeapi.RuntimeService_ListContainers_FullMethodName: appended(func(r *runtimeapi.ListContainersRequest) proto.Message {
			return &runtimeapi.ListContainersResponse{Containers: s.reports.List(r.GetFilter())}
		}),
		runtimeapi.RuntimeService_StreamContainers_FullMethodName: appended(func(r *runtimeapi.StreamContainersRequest) proto.Message {
			return &runtimeapi.StreamContainersResponse{Containers: s.reports.List(r.GetFilter())}
		}),
		runtimeapi.RuntimeService_ListContainerStats_FullMethodName: appended(func(r *runtimeapi.ListContainerStatsRequest) proto.Message {
			return &runtimeapi.ListContainerStatsResponse{Stats: s.reports.ListStats(r.GetFilter())}
		}),
		runtimeapi.RuntimeService_StreamContainerStats_FullMethodName: appended(func(r *runtimeapi.StreamContainerStatsRequest) proto.Message {
			return &runtimeapi.StreamContainerStatsResponse{ContainerStats: s.reports.ListStats(r.GetFilter())}
		}),
	}
}

func (s *containerReportCalls) status(_ context.Context, r *runtimeapi.ContainerStatusRequest) (proto.Message, error) {
	return s.reports.Status(r.GetContainerId(), r.GetVerbose())
}

func (s *containerReportCalls) stats(_ context.Context, r *runtimeapi.ContainerStatsRequest) (proto.Message, error) {
	stats, err := s.reports.Stats(r.GetContainerId())
	return &runtimeapi.ContainerStatsResponse{Stats: stats}, err
}
