package forks

import (
	"errors"
	"fmt"

	"github.com/nodevirt/nodevirt/internal/budget"
)

// grow gives more bytes to a grant of a namespace. While there are none, it drops what no VM uses, the least recently
// used first: of the namespace, and then of all.
func (s *Store) grow(namespace string, g *budget.Grant, n int64) error {
	err := g.Grow(n)
	for err != nil && s.evict(namespace, errors.Is(err, budget.ErrShare)) {
		err = g.Grow(n)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotShared, err)
	}
	return nil
}

// evict drops one entry, and reports whether there was one: of any namespace, or of this one alone, as nothing that others
// have leaves a namespace more of its share.
func (s *Store) evict(namespace string, alone bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var of key
	var oldest *entry
	for k, e := range s.shared {
		select {
		case <-e.made:
		default:
			continue
		}
		own := e.namespace == namespace
		if !e.idle() || alone && !own {
			continue
		}
		if oldest == nil || own != (oldest.namespace == namespace) && own || own == (oldest.namespace == namespace) && e.last.Before(oldest.last) {
			of, oldest = k, e
		}
	}
	if oldest == nil {
		return false
	}
	s.drop(of, oldest)
	return true
}
