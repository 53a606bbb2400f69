package subresources

import (
	"context"
	"io"
	"sync"
	"time"

	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/controller/pod"
)

const (
	// moveTime is how long a caller waits for a guest that moves, and movePoll the time
	// between two looks.
	moveTime = 30 * time.Second
	movePoll = time.Second
)

// moved waits while a migration moves an instance's guest from a pod, and returns the instance when
// another pod has the guest; nil if that does not happen. read returns nil without an instance.
func moved(ctx context.Context, read func(context.Context) *kubevirt.VirtualMachineInstance, from string) *kubevirt.VirtualMachineInstance {
	ctx, cancel := context.WithTimeout(ctx, moveTime)
	defer cancel()
	for {
		vmi := read(ctx)
		if vmi == nil || vmi.Status.Phase != kubevirt.Running {
			return nil
		}
		if pod.Current(vmi) != from {
			return vmi
		}
		if m := vmi.Status.MigrationState; m == nil || m.StartTimestamp == nil || m.Completed || m.Failed {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(movePoll):
		}
	}
}

// onward is a connection that continues with another one when it has ended.
type onward struct {
	next func(context.Context) *connection // nil if nothing continues it

	mu  sync.Mutex
	now *connection
}

func (o *onward) current() *connection {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.now
}

// Write writes to the connection of the moment. What a caller types between two connections is lost.
func (o *onward) Write(p []byte) (int, error) {
	n, err := o.current().Write(p)
	if err != nil && o.next != nil {
		return len(p), nil // the end is known from reading
	}
	return n, err
}

// copyTo passes to the caller what the connections bring, one after the other, and returns how the
// last one ended.
func (o *onward) copyTo(ctx context.Context, to io.Writer) error {
	for {
		_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{o.current()}, make([]byte, chunk))
		if o.next == nil || takenOver(err) || ctx.Err() != nil {
			return err
		}
		next := o.next(ctx)
		if next == nil {
			return err
		}
		o.mu.Lock()
		ended := o.now
		o.now = next
		o.mu.Unlock()
		_ = ended.Close()
	}
}

// Close closes the connection of the moment.
func (o *onward) Close() error { return o.current().Close() }
