package e2e

import "testing"

// TestMetricsOfTheProcess: the shim tells of itself, and counts what it is asked.
func TestMetricsOfTheProcess(t *testing.T) {
	check(t, pull(t.Context(), suite.halt))
	vmPod(t).vm(suite.halt).start()
	for _, series := range []string{
		"go_goroutines", "process_open_fds",
		`nodevirt_cri_requests_total{code="OK",method="StartContainer",side="shim"}`,
		`nodevirt_cri_requests_total{code="OK",method="PullImage",side="containerd"}`,
		`nodevirt_cri_request_duration_seconds_count{method="RunPodSandbox",side="both"}`,
	} {
		if n, err := suite.Sample(t.Context(), series); err != nil || n < 1 {
			t.Errorf("%s = %v, %v", series, n, err)
		}
	}
}
