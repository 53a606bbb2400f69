//go:build slow

package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/test/wait"
)

// lag returns how far the guest's clock is behind the node's, without the time that the question takes.
// The guest's clock is read in whole seconds.
func (c *container) lag() time.Duration {
	c.t.Helper()
	begun := time.Now().Truncate(time.Second)
	seconds, err := strconv.ParseInt(c.sh("date +%s"), 10, 64)
	assert.NilError(c.t, err)
	return max(begun.Sub(time.Unix(seconds, 0)), 0)
}

// TestClock has a guest stand still. Its agent sets its clock after a pause, and where it goes on.
func TestClock(t *testing.T) {
	t.Parallel()
	const still = 6 * time.Second
	right := func(c *container) {
		t.Helper()
		wait.Until(t, "the guest's clock is the node's", func() bool { return c.lag() <= time.Second })
	}
	p := savedPod(t, "clock")
	c := p.create(savedConfig(p, suite.agent)).start().up()
	c.agentIs(agent.Present)
	c.sh("date -s @1000000000") // nothing sets a clock that did not stand still
	if c.lag() < time.Hour {
		t.Error("the clock of a guest that runs was set")
	}
	c.control("pause")
	time.Sleep(still)
	c.control("unpause")
	right(c)

	location := filepath.Join(p.config.LogDirectory, "clock.tar")
	assert.NilError(t, c.save(location))
	right(c)
	time.Sleep(still)
	q := savedPod(t, "later")
	r := q.create(savedConfig(q, location)).start()
	r.agentIs(agent.Present)
	right(r)
	assert.NilError(t, os.Remove(location))
}
