package vmtest

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/nodevirt/nodevirt/shim/console"
)

// Consoles is a fake of [console.Logs].
type Consoles struct {
	script *Script

	mu       sync.Mutex
	followed map[string]console.Console
}

// NewConsoles returns Consoles that follow nothing.
func NewConsoles(s *Script) *Consoles {
	return &Consoles{script: s, followed: map[string]console.Console{}}
}

// Follow implements console's. The raw file must be there.
func (l *Consoles) Follow(c console.Console) error {
	if err := l.script.note("Consoles.Follow"); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	old, known := l.followed[c.ID]
	if known && old != c {
		return fmt.Errorf("follow console of %s: it is followed already, with other files", c.ID)
	}
	if _, err := os.Stat(c.Raw); err != nil {
		return fmt.Errorf("follow console of %s: %w", c.ID, err)
	}
	l.followed[c.ID] = c
	return nil
}

// Finish implements console's.
func (l *Consoles) Finish(ctx context.Context, id string) error {
	if err := l.script.enter(ctx, "Consoles.Finish"); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.followed, id)
	return nil
}

// Drop implements console's. It does not know what a guest has printed.
func (l *Consoles) Drop(id string) (lost int64, err error) {
	if err := l.script.note("Consoles.Drop"); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.followed, id)
	return 0, nil
}

// Reopen implements console's.
func (l *Consoles) Reopen(id string) error {
	if err := l.script.note("Consoles.Reopen"); err != nil {
		return err
	}
	if !l.Follows(id) {
		return fmt.Errorf("reopen container log of %s: %w", id, console.ErrNotFollowed)
	}
	return nil
}

// Follows reports whether a container's console is followed.
func (l *Consoles) Follows(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.followed[id]
	return ok
}

// Left returns the consoles that are followed.
func (l *Consoles) Left() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []string
	for id := range l.followed {
		all = append(all, "console of "+id)
	}
	return all
}
