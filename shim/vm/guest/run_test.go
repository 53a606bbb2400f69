package guest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nodevirt/nodevirt/shim/agent"
	"github.com/nodevirt/nodevirt/shim/record"
)

// TestRunAwaitsTheAgent: a command waits for an agent that comes, and fails if none comes in time.
func TestRunAwaitsTheAgent(t *testing.T) {
	n := newNode(t)
	v := n.add("a", record.Starting)
	n.agents.Absent(v)
	command := agent.Command{Args: []string{"/etc/nodevirt/fork"}}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := n.agents.Run(short, v, command); !errors.Is(err, agent.ErrAbsent) {
		t.Errorf("without an agent: %v", err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := n.agents.Run(t.Context(), v, command)
		done <- err
	}()
	n.serve(t, v, map[string]string{"guest-exec": `{"pid": 7}`, "guest-exec-status": `{"exited": true, "exitcode": 0}`})
	if err := <-done; err != nil {
		t.Error(err)
	}
}
