package aggregated

import (
	"net"
	"slices"
	"sync"

	"github.com/nodevirt/nodevirt/internal/bounds"
)

// Bounds of connections that are not authenticated yet. Above them the oldest one is closed: a front proxy's handshake
// takes milliseconds, and one that lasts is a client that says nothing.
const (
	// MaxHandshakes bounds all, and MaxHandshakesOfOne those of one address.
	MaxHandshakes      = bounds.Handshakes
	MaxHandshakesOfOne = bounds.AddressHandshakes
	// MaxHandshakesOfKnown bounds those of an address that has authenticated before. No other address's close them.
	MaxHandshakesOfKnown = bounds.KnownAddressHandshakes
	// maxKnown is how many such addresses are remembered: a cluster has few API servers.
	maxKnown = 32
)

// handshake is a connection that is not authenticated yet.
type handshake struct {
	conn    net.Conn
	address string
	known   bool // the address has authenticated before
}

// handshakes are those that are under way.
type handshakes struct {
	mu      sync.Mutex
	pending []*handshake // the oldest first
	known   []string     // addresses that have authenticated, the latest last
}

func newHandshakes() *handshakes { return &handshakes{} }

// begin enters a connection, and closes others above the bounds.
func (h *handshakes) begin(c net.Conn, address string) *handshake {
	h.mu.Lock()
	defer h.mu.Unlock()
	made := &handshake{conn: c, address: address, known: slices.Contains(h.known, address)}
	most, own := MaxHandshakesOfOne, 0
	if made.known {
		most = MaxHandshakesOfKnown
	}
	for _, p := range h.pending {
		if p.address == address {
			own++
		}
	}
	switch {
	case own >= most:
		h.closeOldest(func(p *handshake) bool { return p.address == address })
	case len(h.pending) >= MaxHandshakes:
		if !h.closeOldest(func(p *handshake) bool { return !p.known }) {
			h.closeOldest(func(*handshake) bool { return true })
		}
	}
	h.pending = append(h.pending, made)
	return made
}

// closeOldest closes the oldest one of some, and reports whether there was one. The caller holds h.mu.
func (h *handshakes) closeOldest(of func(*handshake) bool) bool {
	i := slices.IndexFunc(h.pending, of)
	if i < 0 {
		return false
	}
	_ = h.pending[i].conn.Close() // its handshake fails, and ends
	h.pending = slices.Delete(h.pending, i, i+1)
	return true
}

// end forgets a handshake that has ended, and remembers the address of one that has succeeded.
func (h *handshakes) end(of *handshake, authenticated bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(h.pending, of); i >= 0 {
		h.pending = slices.Delete(h.pending, i, i+1)
	}
	if !authenticated {
		return
	}
	h.known = append(slices.DeleteFunc(h.known, func(a string) bool { return a == of.address }), of.address)
	if len(h.known) > maxKnown {
		h.known = slices.Delete(h.known, 0, 1)
	}
}
