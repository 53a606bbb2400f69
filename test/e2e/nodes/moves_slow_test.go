//go:build cluster && slow

package nodes

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

var moveCount = flag.Int("moves", 3, "number of moves of TestManyMoves")

// TestManyMoves moves a guest back and forth while it writes to its disk and clients use its Service. What
// it wrote is there, what clients receive is what they sent, and both nodes are as they were before.
func TestManyMoves(t *testing.T) {
	whole(t)
	const name = "moved"
	// The first VM and its moves bring the nodes what stays on them: the image, and libvirt's folders.
	first := newMover(t, "mover")
	first.move(t)
	first.move(t)
	kubectl(t, "delete", "vm", first.name)
	before := map[string]inventory{}
	for _, node := range []string{steady, harmed} {
		cleanNode(t, node)
		before[node] = inventoryOf(t, node)
	}

	m := newMover(t, name)
	create(t, object{
		"apiVersion": "v1", "kind": "Service", "metadata": object{"name": name},
		"spec": object{"selector": object{"app": name}, "ports": []object{{"port": 7}}},
	})
	stream := openStream(t, kubectl(t, "get", "service", name, "-o", "jsonpath={.spec.clusterIP}")+":7")
	unwatch := watchRunning(t)
	begun := time.Now()
	for range *moveCount {
		m.move(t)
		echoed := stream.progress()
		wait.Until(t, "the stream continues", func() bool { return stream.progress() > echoed })
	}
	t.Logf("%d moves in %s; the stream echoed %s", *moveCount, time.Since(begun).Round(time.Second), stream.close(t))
	unwatch()
	m.intact(t)
	kubectl(t, "delete", "vm", name)
	kubectl(t, "delete", "service", name)
	for _, node := range []string{steady, harmed} {
		before[node].same(t, node)
	}
}

// stream is a client of a Service that returns what it gets. It connects again when its connection ends,
// as it does when the guest moves to another pod.
type stream struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	echoes  int
	connect int
	longest time.Duration // without an echo
	wrong   error
}

// openStream begins to send lines to an address.
func openStream(t *testing.T, address string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &stream{stop: cancel}
	t.Cleanup(func() { cancel(); s.done.Wait() })
	s.done.Go(func() {
		last := time.Now()
		for ctx.Err() == nil {
			conn, err := suite.Control().Dial(ctx, "tcp", address)
			if err == nil {
				s.mu.Lock()
				s.connect++
				s.mu.Unlock()
				s.talk(ctx, conn, &last)
				conn.Close()
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	wait.Until(t, "an echo", func() bool { return s.progress() > 0 })
	return s
}

// talk sends lines until an echo is late. Each has a number, so that no echo stands for another.
func (s *stream) talk(ctx context.Context, conn net.Conn, last *time.Time) {
	echo := bufio.NewReader(conn)
	for ctx.Err() == nil {
		line := fmt.Sprintf("%d %s\n", s.progress(), strings.Repeat("x", 1000))
		if conn.SetDeadline(time.Now().Add(2*time.Second)) != nil {
			return
		}
		if _, err := conn.Write([]byte(line)); err != nil {
			return
		}
		got, err := echo.ReadString('\n')
		if err != nil {
			return
		}
		s.mu.Lock()
		if got != line {
			s.wrong = fmt.Errorf("sent %.20q and received %.20q", line, got)
		}
		s.echoes++
		s.longest = max(s.longest, time.Since(*last))
		*last = time.Now()
		s.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *stream) progress() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.echoes
}

// close ends the stream, and says what it did.
func (s *stream) close(t *testing.T) string {
	t.Helper()
	s.stop()
	s.done.Wait()
	if s.wrong != nil {
		t.Error(s.wrong)
	}
	return fmt.Sprintf("%d lines over %d connections, the longest pause was %s", s.echoes, s.connect, s.longest.Round(time.Millisecond))
}

// inventory is what there is on a node: the census, and the TCP ports on which it listens.
type inventory struct {
	census node.Census
	ports  []string
}

func inventoryOf(t *testing.T, name string) inventory {
	t.Helper()
	n := suite.Node(name)
	census, err := n.Settled(t.Context())
	assert.NilError(t, err)
	ports, err := listening(n)
	assert.NilError(t, err)
	return inventory{census, ports}
}

// same checks that a node holds what it held before.
func (i inventory) same(t *testing.T, name string) {
	t.Helper()
	n := suite.Node(name)
	if err := n.SameAgain(t.Context(), i.census, 3*time.Minute); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	ports, err := listening(n)
	assert.NilError(t, err)
	if !slices.Equal(ports, i.ports) {
		t.Errorf("%s listens on %v, and before on %v", name, ports, i.ports)
	}
}

// listening returns the addresses on which a node's own network namespace listens, as /proc/net/tcp has them.
func listening(n *node.Node) (all []string, err error) {
	const listen = "0A"
	for _, file := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", n.PID(), file))
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 3 && f[3] == listen {
				all = append(all, file+" "+f[1])
			}
		}
	}
	slices.Sort(all)
	return all, nil
}
