package proxy

import "sync"

// counter bounds how many requests of each namespace are under way, so that the users of one do not keep
// those of others out.
type counter struct {
	most int
	mu   sync.Mutex
	by   map[string]int
}

func newCounter(most int) *counter { return &counter{most: most, by: map[string]int{}} }

// add reports whether one more request can be served. The caller then removes it later.
func (c *counter) add(namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by[namespace] >= c.most {
		return false
	}
	c.by[namespace]++
	return true
}

func (c *counter) remove(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by[namespace]--; c.by[namespace] == 0 {
		delete(c.by, namespace)
	}
}
