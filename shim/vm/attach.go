package vm

import (
	"context"
	"io"

	"github.com/nodevirt/nodevirt/shim/console/terminal"
	"github.com/nodevirt/nodevirt/shim/stream"
)

// Attach joins a client and a machine's serial console, until the machine ends
// or the client leaves. A serial port knows no terminal size.
func (m *Manager) Attach(ctx context.Context, id string, s stream.Streams) error {
	c, err := m.running(id)
	if err != nil {
		return err
	}
	out := io.Discard
	if s.Out != nil {
		out = s.Out
	}
	m.log(c.record()).Debug("a client is attached to the console", "types", s.In != nil)
	return m.Terminals.Attach(ctx, terminal.Console{
		Raw: m.path(id, consoleFile), Socket: m.consoleSocket(id), Ended: c.exited,
	}, s.In, out)
}
