package vm

import (
	"context"
	"fmt"

	"github.com/nodevirt/nodevirt/shim/stream"
)

// Attach joins a client and a machine's serial console.
func (m *Manager) Attach(_ context.Context, id string, _ stream.Streams) error {
	return fmt.Errorf("container %q is a virtual machine: attaching to it is %w yet: its console is in its log", id, ErrUnsupported)
}
