// Package budget bounds what strangers have this process hold: bytes, streams or calls.
//
// A [Budget] has a limit for all and one for each tenant, which is a namespace or a pod. The limit of a tenant is
// lower, so that no single one can take everything from the others. The package owns the counting. It leaves to its
// callers what they count, who the tenant is, and what they do without a grant: fail, wait, or give up what they keep.
package budget

import (
	"errors"
	"fmt"
	"sync"
)

// ErrFull says that a budget has nothing left for a tenant.
var ErrFull = errors.New("limit reached")

// ErrShare is the [ErrFull] of a tenant that has its whole share.
var ErrShare = fmt.Errorf("%w", ErrFull)

// Budget counts what tenants hold. Its methods may be called from any goroutine.
type Budget struct {
	what        string
	most, share int64

	mu   sync.Mutex
	used int64
	of   map[string]int64 // by tenant; only those that hold something
}

// New returns a budget of most units, of which each tenant can have share. What names the units in errors.
func New(what string, most, share int64) *Budget {
	return &Budget{what: what, most: most, share: share, of: map[string]int64{}}
}

// Take gives n units to a tenant, or returns [ErrFull]. It does not wait. The caller releases them by [Budget.Release].
func (b *Budget) Take(tenant string, n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.of[tenant]+n > b.share {
		return fmt.Errorf("%w: %s may have %d %s, and has %d; try again when it has fewer", ErrShare, tenant, b.share, b.what, b.of[tenant])
	}
	if b.used+n > b.most {
		return fmt.Errorf("%w: all together may have %d %s, and have %d; try again later", ErrFull, b.most, b.what, b.used)
	}
	b.used += n
	b.of[tenant] += n
	return nil
}

// Release takes n units back.
func (b *Budget) Release(tenant string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.of[tenant] -= n; b.of[tenant] == 0 {
		delete(b.of, tenant)
	}
}

// Used returns how many units all tenants have.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Grant is what one holder has taken. It grows in steps, and is released at once.
type Grant struct {
	budget *Budget
	tenant string
	mu     sync.Mutex
	n      int64
}

// Grant returns an empty grant of a tenant.
func (b *Budget) Grant(tenant string) *Grant { return &Grant{budget: b, tenant: tenant} }

// Grow takes n more units.
func (g *Grant) Grow(n int64) error {
	if err := g.budget.Take(g.tenant, n); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n += n
	return nil
}

// Release takes all units back. Further calls do nothing.
func (g *Grant) Release() {
	g.mu.Lock()
	n := g.n
	g.n = 0
	g.mu.Unlock()
	if n > 0 {
		g.budget.Release(g.tenant, n)
	}
}
