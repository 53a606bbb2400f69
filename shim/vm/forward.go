package vm

import (
	"context"
	"fmt"
	"io"
)

// Forward joins a client and a TCP port of a pod whose machine runs.
func (m *Manager) Forward(_ context.Context, sandboxID string, _ uint16, _ io.ReadWriter) error {
	return fmt.Errorf("sandbox %q holds a virtual machine: port-forward to it is %w yet", sandboxID, ErrUnsupported)
}
