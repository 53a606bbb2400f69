package vmtest

import (
	"context"
	"sync/atomic"

	"github.com/nodevirt/nodevirt/shim/podstatus"
)

// PodLookup is a fake API server that has all pods, or none.
type PodLookup struct {
	script *Script
	// Gone is set while it has none. Left is after how many such answers it has all again; 0 for never.
	gone atomic.Bool
	left atomic.Int32
}

// NewPodLookup returns an API server that has all pods.
func NewPodLookup(s *Script) *PodLookup { return &PodLookup{script: s} }

// Lose has the API server have no pods, for a number of answers; 0 for ever.
func (p *PodLookup) Lose(answers int32) {
	p.left.Store(answers)
	p.gone.Store(true)
}

// Gone implements lifecycle's.
func (p *PodLookup) Gone(ctx context.Context, _ podstatus.Pod) (bool, error) {
	if err := p.script.enter(ctx, "PodLookup.Gone"); err != nil {
		return false, err
	}
	gone := p.gone.Load()
	if p.left.Load() > 0 && p.left.Add(-1) == 0 {
		p.gone.Store(false)
	}
	return gone, nil
}
