package cri

import runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

// podReports adds VMs to containerd's stats and metrics of pods.
type podReports interface {
	AddToPodStats(pod *runtimeapi.PodSandboxStats)
	AddToPodMetrics(pod *runtimeapi.PodSandboxMetrics)
}

// podReportCalls are the calls that read the stats and metrics of pods.
type podReportCalls struct {
	sandboxes sandboxIndex
	reports   podReports
}

func (s *podReportCalls) routes() map[string]route {
	return map[string]route{
		runtimeapi.RuntimeService_PodSandboxStats_FullMethodName: amended(s.sandboxes,
			func(r *runtimeapi.PodSandboxStatsResponse) { s.reports.AddToPodStats(r.GetStats()) }),
		runtimeapi.RuntimeService_ListPodSandboxStats_FullMethodName: amended(s.sandboxes,
			func(r *runtimeapi.ListPodSandboxStatsResponse) { s.addStats(r.GetStats()) }),
		runtimeapi.RuntimeService_StreamPodSandboxStats_FullMethodName: amended(s.sandboxes,
			func(r *runtimeapi.StreamPodSandboxStatsResponse) { s.addStats(r.GetPodSandboxStats()) }),
		runtimeapi.RuntimeService_ListPodSandboxMetrics_FullMethodName: amended(s.sandboxes,
			func(r *runtimeapi.ListPodSandboxMetricsResponse) { s.addMetrics(r.GetPodMetrics()) }),
		runtimeapi.RuntimeService_StreamPodSandboxMetrics_FullMethodName: amended(s.sandboxes,
			func(r *runtimeapi.StreamPodSandboxMetricsResponse) { s.addMetrics(r.GetPodSandboxMetrics()) }),
	}
}

func (s *podReportCalls) addStats(pods []*runtimeapi.PodSandboxStats) {
	for _, p := range pods {
		s.reports.AddToPodStats(p)
	}
}

func (s *podReportCalls) addMetrics(pods []*runtimeapi.PodSandboxMetrics) {
	for _, p := range pods {
		s.reports.AddToPodMetrics(p)
	}
}
