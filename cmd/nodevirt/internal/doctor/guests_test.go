package doctor

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/witness"
)

func TestGuestVerdicts(t *testing.T) {
	guests := []witness.Process{{PID: 7, Emulator: true, Domain: "default_web_0123", Container: strings.Repeat("a", 64)}, {PID: 8, Emulator: true}}
	for name, c := range map[string]struct {
		status *runtimeapi.ContainerStatus
		err    error
		want   Level
		detail string
	}{
		"known":     {&runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_RUNNING}, nil, OK, "2 guests"},
		"starting":  {&runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_CREATED}, nil, OK, "2 guests"},
		"lost":      {nil, status.Error(codes.NotFound, "no"), Lost, "process 7, of domain default_web_0123"},
		"ended":     {&runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_EXITED}, nil, Lost, "its container is exited"},
		"refused":   {&runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_UNKNOWN, Message: "it is truncated"}, nil, Lost, "it is truncated"},
		"forgotten": {&runtimeapi.ContainerStatus{Reason: "StateDisputed", State: runtimeapi.ContainerState_CONTAINER_RUNNING, Message: "libvirt no longer"}, nil, Lost, "libvirt no longer"},
		"no shim":   {nil, errors.New("connection refused"), Warn, "does not report"},
	} {
		f := explained(guests, func(string) (*runtimeapi.ContainerStatus, error) { return c.status, c.err })
		if f.Level != c.want || !strings.Contains(f.Detail, c.detail) || (f.Remedy == "") != (c.want == OK) {
			t.Errorf("%s: %+v", name, f)
		}
		var out bytes.Buffer
		if err := table(&out, []Finding{f}); err != nil {
			t.Fatal(err)
		}
		if f.Level == Lost && (strings.Contains(out.String(), "VMs can start") || !failed([]Finding{f})) {
			t.Errorf("%s: doctor says\n%s", name, out.String())
		}
	}
}
