package vm

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/stream"
)

// CheckExec refuses a command that can't be run in a machine, before its client
// is given a URL. The id is a running container's.
func (m *Manager) CheckExec(id string, _ *runtimeapi.ExecRequest) error {
	return noExec(id)
}

// Exec runs a command in a guest with a client's streams.
func (m *Manager) Exec(_ context.Context, id string, _ []string, _ stream.Streams) error {
	return noExec(id)
}

// ExecSync runs a command in a guest and returns its output and its code.
func (m *Manager) ExecSync(_ context.Context, id string, _ []string, _ time.Duration) (*runtimeapi.ExecSyncResponse, error) {
	return nil, noExec(id)
}

func noExec(id string) error {
	return fmt.Errorf("container %q is a virtual machine: exec in it is %w yet: attach to its console, "+
		"or log in over the network; for a probe, use http or tcp", id, ErrUnsupported)
}
