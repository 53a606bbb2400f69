package attack

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	// rounds is how often the neighbour works, each time.
	rounds = 5
	// most is how many times longer than normal a neighbour's work may take.
	most = 2
)

// least returns the delay that counts: other work of the machine causes shorter ones. A node's work boots guests.
func (s Suite) least() time.Duration {
	if s == Controller {
		return 100 * time.Millisecond
	}
	return 2 * time.Second
}

// Round is the neighbour's work, once. It has each part measured by its name.
type Round func(ctx context.Context, t *testing.T, measure func(part string, do func() error))

// Attack exceeds bounds.
type Attack struct {
	Name string
	// Bounds are those that it exceeds, as package bounds names them.
	Bounds []string
	// Begin exceeds the bounds until ctx ends. It returns once they are reached. End waits for the rest of the attack, and
	// returns an error unless the bounds were exceeded.
	Begin func(ctx context.Context, t *testing.T) (end func() error)
}

// times are those of a round's parts.
type times map[string][]time.Duration

// Run measures the neighbour's work without attacks, during each, and without them again. It fails for work that fails, or
// that takes more than twice its normal time.
func Run(t *testing.T, suite Suite, neighbour Round, attacks []Attack) {
	t.Helper()
	checkBounds(t, suite, attacks)
	before := work(t, neighbour)
	during := map[string]times{}
	for _, a := range attacks {
		t.Run(a.Name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			end := a.Begin(ctx, t)
			during[a.Name] = work(t, neighbour)
			cancel()
			if err := end(); err != nil {
				t.Errorf("the attack: %v", err)
			}
		})
	}
	after := work(t, neighbour)
	var table strings.Builder
	table.WriteString("| attack | part | normal | attacked | times |\n|---|---|---|---|---|\n")
	for _, a := range attacks {
		if during[a.Name] == nil {
			continue // the test's flags left it out, or it has failed
		}
		for _, part := range before.parts() {
			normal, attacked := max(median(before[part]), median(after[part])), median(during[a.Name][part])
			fmt.Fprintf(&table, "| %s | %s | %s | %s | %.1f |\n", a.Name, part, rounded(normal), rounded(attacked), float64(attacked)/float64(normal))
			if attacked > max(most*normal, normal+suite.least()) {
				t.Errorf("%s: a neighbour's %s takes %s, and normally %s", a.Name, part, rounded(attacked), rounded(normal))
			}
		}
	}
	t.Logf("medians of %d:\n%s", rounds, table.String())
}

// work has the neighbour work.
func work(t *testing.T, neighbour Round) times {
	t.Helper()
	all := times{}
	for range rounds {
		neighbour(t.Context(), t, func(part string, do func() error) {
			begun := time.Now()
			if err := do(); err != nil {
				t.Errorf("a neighbour's %s: %v", part, err)
			}
			all[part] = append(all[part], time.Since(begun))
		})
	}
	return all
}

func (all times) parts() []string { return slices.Sorted(maps.Keys(all)) }

func median(all []time.Duration) time.Duration {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

func rounded(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
