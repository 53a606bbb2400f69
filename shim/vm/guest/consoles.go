package guest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nodevirt/nodevirt/shim/stream"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// controlConsole is the serial console for one client at a time: the newest ends the
// one before, as with KubeVirt. Clients that attach are not counted.
const controlConsole = "console"

// codeTakenOver is the exit code of a console's client that a newer one has ended;
// EX_TEMPFAIL of sysexits.h. controller/subresources has the same.
const codeTakenOver = 75

var errTakenOver = errors.New("another client has taken over the console")

// consoleClient is the end of the one client of a VM's console.
type consoleClient struct {
	mu  sync.Mutex
	end context.CancelCauseFunc // nil before the first client
}

// replace makes a client the one, and ends the one before.
func (c *consoleClient) replace(end context.CancelCauseFunc) {
	c.mu.Lock()
	former := c.end
	c.end = end
	c.mu.Unlock()
	if former != nil {
		former(errTakenOver)
	}
}

// console joins a client and the serial console until a newer client comes. As with KubeVirt, the client
// sees what comes from then on: its programs wait for what answers to them. It first reads the line [connected],
// so that it knows that it is the newest.
func (g *Guests) console(ctx context.Context, v *table.VM, s stream.Streams) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	g.consoleClients.Of(v).replace(end)
	err := g.attach(ctx, v, s, connected)
	if errors.Is(context.Cause(ctx), errTakenOver) {
		return &stream.ExitError{Code: codeTakenOver}
	}
	return err
}

// consoleWithoutStream refuses a call that has no streams.
func consoleWithoutStream(context.Context, *table.VM) ([]byte, error) {
	return nil, fmt.Errorf("%w: the console needs a stream: use exec -it", vmerrors.ErrInvalid)
}
