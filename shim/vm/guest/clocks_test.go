package guest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/checkpoint"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/table"
	"github.com/nodevirt/nodevirt/test/wait"
)

// guestClock is the clock of a guest, as its agent sets it.
type guestClock struct {
	mu     sync.Mutex
	behind time.Duration
	// refuses says that the agent fails after it has set the clock, useless that it sets none.
	refuses, useless bool
	gets, sets       int
}

func (c *guestClock) answer(command string) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch command {
	case "guest-get-time":
		c.gets++
		return fmt.Sprint(time.Now().Add(-c.behind).UnixNano()), true
	case "guest-set-time":
		c.sets++
		if !c.useless {
			c.behind = 0
		}
		return "{}", !c.refuses && !c.useless
	}
	return "", false
}

func (c *guestClock) now() (behind time.Duration, sets int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.behind, c.sets
}

// A guest that was paused gets the node's time once its agent is there. One that boots needs none.
func TestClocks(t *testing.T) {
	n := newNode(t)
	resumed := func(v *table.VM) {
		n.agents.Handle(v, domain.Event{UUID: v.Record().Domain.UUID, Kind: domain.EventResumed})
	}
	for letter, c := range map[string]*guestClock{"a": {behind: time.Hour}, "b": {behind: -time.Hour, refuses: true}, "c": {behind: time.Hour, useless: true}} {
		v := n.add(letter, record.Running)
		n.serveWith(t, v, c.answer)
		resumed(v)
		wait.Until(t, "the clock is set", func() bool { _, sets := c.now(); return sets == 1 })
		if behind, _ := c.now(); (behind != 0) != c.useless {
			t.Errorf("%s: the clock is %s behind", letter, behind)
		}
		wrong, err := n.agents.Of(v).FollowTime(t.Context(), 0)
		if (err != nil) != c.useless || wrong != 0 {
			t.Errorf("%s: wrong by %s, %v", letter, wrong, err)
		}
	}

	elsewhere, c := n.add("d", record.Running), &guestClock{behind: time.Hour}
	r := elsewhere.Record()
	r.Restored, r.Spec.Clock.Offset = new(checkpoint.Manifest), -3600
	elsewhere.Publish(r)
	n.agents.Absent(elsewhere)
	resumed(elsewhere)
	n.serveWith(t, elsewhere, c.answer)
	connected := domain.Event{UUID: r.Domain.UUID, Kind: domain.EventAgentConnected}
	n.agents.Handle(elsewhere, connected)
	wait.Until(t, "its clock is read", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.gets > 0
	})
	if wrong, err := n.agents.Of(elsewhere).FollowTime(t.Context(), -time.Hour); err != nil || wrong != 0 {
		t.Errorf("wrong by %s, %v", wrong, err)
	}
	if _, sets := c.now(); sets != 0 {
		t.Error("a clock that the VM's spec has behind was set")
	}

	boots, b := n.add("e", record.Running), &guestClock{behind: time.Hour}
	n.agents.Absent(boots)
	resumed(boots)
	n.serveWith(t, boots, b.answer)
	if n.agents.clocks.of.Of(boots).take() {
		t.Error("the clock of a guest that boots would be set")
	}
	if n.agents.State(boots).Presence != agent.Present {
		t.Error("its agent is not there")
	}
}
