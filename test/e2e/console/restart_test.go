package console

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

var notice = regexp.MustCompile(`(?m)^\[nodevirt: (\d+) bytes of console output dropped: .*\]$`)

// testAway leaves more than the bound unlogged while there is no shim: what is dropped is said, and
// nothing else is lost. The guest prints its lines; what would take it minutes to print is appended
// to its file for it, as QEMU does.
func (s *suite) testAway(t *testing.T) {
	v := s.start(t, "away", s.ticking(t), tickingVMI)
	v.says(`tick 1\r?$`)
	assert.NilError(t, s.n.Kill(t.Context(), node.Shim, syscall.SIGKILL))
	before, _ := v.printed()
	wait.Until(t, "the guest prints on", func() bool { size, _ := v.printed(); return size > before })
	assert.NilError(t, s.n.Resume(t.Context(), node.Shim))
	v.says(`tick 3\r?$`)
	if text := v.said(v.log); v.ticks(text) < 3 || notice.Match(text) {
		t.Errorf("within the bound it says\n%s", text)
	}

	assert.NilError(t, s.n.Kill(t.Context(), node.Shim, syscall.SIGKILL))
	logged := v.ticks(v.said(v.log))
	line := fmt.Appendf(nil, "%0*d\n", 79, 0)
	const flood = maxLag + 5<<20
	raw, err := os.OpenFile(v.raw, os.O_WRONLY|os.O_APPEND, 0)
	assert.NilError(t, err)
	_, err = raw.Write(bytes.Repeat(line, flood/len(line)))
	assert.NilError(t, err)
	assert.NilError(t, raw.Close())
	assert.NilError(t, s.n.Resume(t.Context(), node.Shim))
	v.says(notice.String())
	wait.Until(t, "the guest is heard again", func() bool {
		text := v.said(v.log)
		return tick.Match(text[notice.FindIndex(text)[1]:])
	})
	text := v.said(v.log)
	at := notice.FindSubmatchIndex(text)
	dropped, err := strconv.Atoi(string(text[at[2]:at[3]]))
	assert.NilError(t, err)
	kept := bytes.Count(text[at[1]:], line) * len(line)
	if v.ticks(text[:at[0]]) < logged || kept > keepLag || kept < keepLag/2 {
		t.Errorf("%d ticks before the gap, of which %d were logged; %d bytes kept behind it", v.ticks(text[:at[0]]), logged, kept)
	}
	// What else the guest printed meanwhile are a few ticks.
	if printed := dropped + kept; printed < flood/len(line)*len(line) || printed > flood+10_000 {
		t.Errorf("%d bytes dropped and %d kept, of %d", dropped, kept, flood)
	}
	wait.Until(t, "the file is small again", func() bool { _, held := v.printed(); return held < 3<<20 })
}
