package nodelabels

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nodevirt/nodevirt/shim/kubelet"
	"github.com/nodevirt/nodevirt/shim/nodeproblems"
)

// TestCondition: the condition is written when it changes, again when that failed, and now and then.
func TestCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written []NodeCondition
		away := true
		var problems []nodeproblems.Problem
		c := &Condition{
			log: slog.New(slog.DiscardHandler),
			write: func(_ context.Context, now NodeCondition) error {
				if away {
					return kubelet.ErrAway
				}
				written = append(written, now)
				return nil
			},
			problems: func() []nodeproblems.Problem { return problems },
		}
		step := func(what string, count int, status string, reason, message string) {
			t.Helper()
			c.step(t.Context())
			if len(written) != count {
				t.Fatalf("%s: written %d times", what, len(written))
			}
			if count == 0 {
				return
			}
			if last := written[count-1]; last.Type != Degraded || last.Status != status || last.Reason != reason || message != "" && last.Message != message {
				t.Errorf("%s: %+v", what, last)
			}
		}
		step("without an API server", 0, "", "", "")
		away = false
		step("at first", 1, "False", "NoProblem", "")
		since := written[0].LastTransitionTime
		step("again", 1, "False", "NoProblem", "")
		time.Sleep(heartbeat)
		step("later", 2, "False", "NoProblem", "")
		if now := written[1]; !now.LastTransitionTime.Equal(since) || now.LastHeartbeatTime.Equal(since) {
			t.Errorf("it changed at %v", now.LastTransitionTime)
		}
		problems = []nodeproblems.Problem{{Reason: nodeproblems.NoRoomForLibvirtd, Message: "make room"}, {Reason: nodeproblems.PodsLost, Message: "restore its root"}}
		step("with problems", 3, "True", "NoRoomForLibvirtd", "make room; restore its root")
		problems = nil
		step("in the end", 4, "False", "NoProblem", "")
	})
}
