//go:build faults

package faults

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"
)

// TestManyClients has the same made, and unmade, by several clients at once.
func TestManyClients(t *testing.T) {
	const clients, times = 8, 3
	for i := range times {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			r := begin(t)
			r.does(t, life[0])
			for _, step := range []struct {
				call    call
				refusal codes.Code // of all but one; OK where each is content
			}{
				{life[1], codes.FailedPrecondition},
				{life[2], codes.Unknown},
				{life[ending], codes.OK},
				{life[ending+1], codes.OK},
			} {
				got := map[codes.Code]int{}
				var mu sync.Mutex
				var all sync.WaitGroup
				var container string
				for range clients {
					all.Go(func() {
						p := *r.pod
						err := step.call.do(t.Context(), &p)
						mu.Lock()
						defer mu.Unlock()
						got[status.Code(err)]++
						if err == nil {
							container = p.container
						}
						if code := status.Code(err); code != codes.OK && code != step.refusal {
							t.Errorf("%s: %v", step.call.name, err)
						}
					})
				}
				all.Wait()
				if step.refusal != codes.OK && got[codes.OK] != 1 {
					t.Errorf("%s by %d clients: %v", step.call.name, clients, got)
				}
				r.container = container
			}
		})
	}
}

// TestManyClientsAtOdds has clients lead the whole of a container's life against each other: one
// stops what the next one starts, and removes what another makes.
func TestManyClientsAtOdds(t *testing.T) {
	const clients, times = 8, 6
	r := begin(t)
	r.does(t, life[0])
	var mu sync.Mutex
	var all sync.WaitGroup
	latest := "" // the container that was made last
	for i := range clients {
		all.Go(func() {
			for n := range times {
				mu.Lock()
				p := *r.pod
				p.container = latest
				mu.Unlock()
				c := [...]call{life[1], life[2], life[ending], life[ending+1]}[(i+n)%4]
				if c.name != life[1].name && p.container == "" {
					continue
				}
				err := c.do(t.Context(), &p)
				switch status.Code(err) {
				case codes.OK:
					mu.Lock()
					latest = p.container
					mu.Unlock()
				case codes.FailedPrecondition, codes.NotFound:
				default:
					// containerd has no code for a start in the wrong state, and so the shim has none.
					if c.name != life[2].name || !strings.Contains(err.Error(), "failed to set starting state") {
						t.Errorf("%s: %v", c.name, err)
					}
				}
			}
		})
	}
	all.Wait()
	assert.NilError(t, converge(t.Context(), r.isTrue))
}

// TestGivenUp has clients lose interest in the middle of each call that changes something: by
// deadline, and by hanging up.
func TestGivenUp(t *testing.T) {
	for at, c := range life {
		if at >= started && at < ending {
			continue
		}
		for i, part := range []float64{0, 0.1, 0.3, 0.6, 0.9} {
			t.Run(fmt.Sprintf("%s/%g", c.name, part), func(t *testing.T) {
				r := begin(t)
				r.at, r.givenUp = at, true
				r.does(t, life[:min(at, started)]...)
				if at > ending {
					r.does(t, life[ending:at]...)
				}
				ctx, cancel := context.WithCancel(t.Context())
				after := time.Duration(part * float64(c.usual))
				if i%2 == 0 {
					ctx, cancel = context.WithTimeout(t.Context(), after)
				} else {
					time.AfterFunc(after, cancel)
				}
				defer cancel()
				p := *r.pod
				switch err := c.do(ctx, &p); status.Code(err) {
				case codes.OK, codes.Canceled, codes.DeadlineExceeded:
				default:
					t.Errorf("%s given up after %s: %v", c.name, after, err)
				}
			})
		}
	}
}
