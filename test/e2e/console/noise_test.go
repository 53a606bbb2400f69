package console

import (
	"bytes"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/wait"
)

// testNoise has a guest print bytes of all values, while the kubelet rotates the log and the shim is
// killed, again and again. It powers off while there is no shim. No byte may be lost, doubled or
// changed.
func (s *suite) testNoise(t *testing.T) {
	v := s.start(t, "noise", s.sector(t, "noise", guest.NoiseSector(noiseSize, guest.PowerOff)), "")
	v.crictl("update", "--cpu-period=100000", "--cpu-quota=25000", v.id) // it prints for longer than three shims take to start
	var logs []string
	const steps = 8
	for i := range int64(steps) {
		wait.Until(t, "the guest prints on", func() bool {
			size, _ := v.printed()
			return size >= i*noiseSize/steps
		})
		if i%2 == 0 {
			logs = append(logs, v.rotate(len(logs)))
			continue
		}
		assert.NilError(t, s.n.Kill(t.Context(), node.Shim, syscall.SIGKILL))
		if i < steps-1 {
			assert.NilError(t, s.n.Resume(t.Context(), node.Shim))
		}
	}
	wait.Until(t, "the guest has printed all", func() bool { size, _ := v.printed(); return size == noiseSize })
	assert.NilError(t, s.n.Resume(t.Context(), node.Shim))
	wait.Until(t, "the guest has ended", v.ended)

	got, want := v.said(append(logs, v.log)...), bytes.ReplaceAll(guest.Noise(noiseSize), []byte("\r\n"), []byte("\n"))
	if !bytes.Equal(got, want) {
		n := 0
		for n < min(len(got), len(want)) && got[n] == want[n] {
			n++
		}
		t.Errorf("%d bytes are logged, %d were printed; they differ from byte %d on", len(got), len(want), n)
	}
	if code := v.status().GetExitCode(); code != 0 {
		t.Errorf("the guest, which powered off, has the exit code %d", code)
	}
}
