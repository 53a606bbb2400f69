package move

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/shim/vm/vmerrors"
)

// few is a node with few ports.
type few struct {
	mu   sync.Mutex
	left int
}

func (f *few) listen(context.Context) (net.Listener, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left == 0 {
		return nil, fmt.Errorf("listen: %w", syscall.EADDRINUSE)
	}
	f.left--
	return &held{of: f}, nil
}

type held struct {
	net.Listener
	of   *few
	once sync.Once
}

func (h *held) Close() error {
	h.once.Do(func() {
		h.of.mu.Lock()
		defer h.of.mu.Unlock()
		h.of.left++
	})
	return nil
}

// TestPortsAreShared: targets of one namespace that wait for guests leave ports to others; ports of failed targets are free at
// once, and those of settled ones when others need them.
func TestPortsAreShared(t *testing.T) {
	node, p := &few{left: bounds.NodePorts}, newPorts()
	now := time.Now()
	p.now = func() time.Time { return now }
	take := func(namespace string) (*port, error) { return p.take(t.Context(), namespace, node.listen) }
	var greedy []*port
	for range bounds.NamespaceNodePorts {
		one, err := take("greedy")
		assert.NilError(t, err)
		greedy = append(greedy, one)
	}
	_, err := take("greedy")
	assert.Assert(t, errors.Is(err, vmerrors.ErrBusy), "%v", err)
	one, err := take("neighbour")
	assert.NilError(t, err)
	assert.NilError(t, one.Close())
	assert.NilError(t, one.Close())
	assert.Equal(t, node.left, bounds.NodePorts-len(greedy))

	// A failed target leaves its port and its share.
	assert.NilError(t, greedy[0].Close())
	greedy[0], err = take("greedy")
	assert.NilError(t, err)

	// Sixteen guests come within ten minutes, and a seventeenth.
	for _, g := range greedy {
		go closeWhen(g, g.answers())
	}
	for range bounds.NodePorts - len(greedy) {
		one, err := take("greedy")
		assert.NilError(t, err)
		go closeWhen(one, one.answers())
	}
	_, err = take("neighbour")
	assert.ErrorIs(t, err, syscall.EADDRINUSE, "a target that has settled just now keeps its port")
	now = now.Add(answerLeast)
	one, err = take("neighbour")
	assert.NilError(t, err)
	select {
	case <-greedy[0].closed:
	default:
		t.Error("the port of another target than the first was taken")
	}
	assert.NilError(t, one.Close())
	assert.Equal(t, p.shares.Used(), int64(0))
}

func closeWhen(p *port, needed <-chan struct{}) {
	<-needed
	_ = p.Close()
}
