package vmtest

import (
	"context"
	"sync/atomic"

	"github.com/nodevirt/nodevirt/shim/podstatus"
)

// Presence is a fake API server that has all pods, or none.
type Presence struct {
	script *Script
	// Gone is set while it has none. Left is after how many such answers it has all again; 0 for never.
	gone atomic.Bool
	left atomic.Int32
}

// NewPresence returns an API server that has all pods.
func NewPresence(s *Script) *Presence { return &Presence{script: s} }

// Lose has the API server have no pods, for a number of answers; 0 for ever.
func (p *Presence) Lose(answers int32) {
	p.left.Store(answers)
	p.gone.Store(true)
}

// Gone implements lifecycle's.
func (p *Presence) Gone(ctx context.Context, _ podstatus.Pod) (bool, error) {
	if err := p.script.enter(ctx, "Presence.Gone"); err != nil {
		return false, err
	}
	gone := p.gone.Load()
	if p.left.Load() > 0 && p.left.Add(-1) == 0 {
		p.gone.Store(false)
	}
	return gone, nil
}
