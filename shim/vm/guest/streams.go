package guest

import (
	"context"
	"fmt"
	"io"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/stream"
)

// sizes passes a client's terminal sizes on until ctx ends.
func sizes(ctx context.Context, from <-chan stream.Size) <-chan agent.Size {
	if from == nil {
		return nil
	}
	to := make(chan agent.Size)
	go func() { // ends at the latest with the client's connection
		defer close(to)
		for size := range from {
			select {
			case to <- agent.Size{Rows: size.Height, Columns: size.Width}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return to
}

// deliver writes a command's output to its client.
func deliver(s stream.Streams, r agent.Result) error {
	for _, out := range []struct {
		name string
		to   io.Writer
		data []byte
		cut  bool
	}{{"stdout", s.Out, r.Stdout, r.StdoutTruncated}, {"stderr", s.Err, r.Stderr, r.StderrTruncated}} {
		if out.to != nil {
			if _, err := out.to.Write(out.data); err != nil {
				return fmt.Errorf("deliver its %s: %w", out.name, err)
			}
		}
		if out.cut && s.Err != nil {
			if _, err := fmt.Fprintf(s.Err, "nodevirt: the guest agent keeps no more than the first %d bytes of %s\n",
				len(out.data), out.name); err != nil {
				return fmt.Errorf("deliver its stderr: %w", err)
			}
		}
	}
	return nil
}
