package console

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/wait"
)

func detached(t *testing.T) context.Context { return context.WithoutCancel(t.Context()) }

// testLogs looks at consoles as people do.
func (s *suite) testLogs(t *testing.T) {
	const text = "Grüße, 世界 🖥 \x1b[1mbold\x1b[0m \xff\xfe"
	ended := s.start(t, "ended", s.sector(t, "ended", guest.BootSector(text, guest.PowerOff)), "")
	wait.Until(t, "the guest has ended", ended.ended)
	for _, args := range [][]string{{}, {"--tail", "1"}, {"-f"}, {"--since", "1h"}} {
		if out := ended.logs(args...); out != text+"\n" {
			t.Errorf("crictl logs %v of a guest that has ended shows %q", args, out)
		}
	}
	if out := ended.logs("--tail", "0"); out != "" {
		t.Errorf("crictl logs --tail 0 shows %q", out)
	}

	v := s.start(t, "running", s.ticking(t), tickingVMI)
	following := v.n.Command(t.Context(), "crictl", "logs", "-f", v.id)
	var heard bytes.Buffer
	following.Stdout, following.Stderr = &heard, &heard
	assert.NilError(t, following.Start())
	v.says(`tick 3\r?$`)
	v.wantTail()
	v.wantTimes()
	v.crictl("stop", "--timeout", "0", v.id)
	assert.NilError(t, following.Wait()) // ends with the guest
	if all := v.logs(); heard.String() != all || v.ticks(v.said(v.log)) < 3 {
		t.Errorf("crictl logs -f showed\n%s\nand crictl logs shows\n%s", heard.String(), all)
	}
}

func (v *vm) logs(args ...string) string {
	v.t.Helper()
	return v.crictl(append(append([]string{"logs"}, args...), v.id)...)
}

// wantTail checks that a tail is the end of what was there and may have more behind it.
func (v *vm) wantTail() {
	v.t.Helper()
	all := lines(v.logs())
	tail := lines(v.logs("--tail", "2"))
	if len(tail) != 2 || !strings.Contains(v.logs(), strings.Join(tail, "\n")) || strings.Contains(tail[1], all[0]) {
		v.t.Errorf("--tail 2 shows %q", tail)
	}
}

// wantTimes checks --timestamps against the log, and --since against --timestamps.
func (v *vm) wantTimes() {
	v.t.Helper()
	stamped := lines(v.logs("--timestamps"))
	var last time.Time
	for _, line := range stamped {
		stamp, _, _ := strings.Cut(line, " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		if err != nil || at.Before(last) || at.After(time.Now()) || time.Since(at) > time.Hour {
			v.t.Fatalf("--timestamps shows %q after %s: %v", line, last, err)
		}
		last = at
	}
	from := stamped[len(stamped)-1]
	stamp, text, _ := strings.Cut(from, " ")
	since := lines(v.logs("--timestamps", "--since", stamp))
	if since[0] != from {
		v.t.Errorf("--since %s shows %q first, not %q", stamp, since[0], text)
	}
	if out := v.logs("--since", fmt.Sprint(time.Now().Add(time.Hour).Format(time.RFC3339))); out != "" {
		v.t.Errorf("--since in an hour shows %q", out)
	}
}
