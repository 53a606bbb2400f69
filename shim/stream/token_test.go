package stream_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/stream"
)

// TestLateToken: a token is good for a minute, for each kind of stream.
func TestLateToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := stream.Listen(t.Context(), stream.Options{
			Address: "127.0.0.1:0", Machines: newEchoes(), Logger: slog.New(slog.DiscardHandler),
		})
		assert.NilError(t, err)
		defer func() { assert.NilError(t, s.Close()) }()
		urls := func() []string {
			exec, err := s.Exec(&runtimeapi.ExecRequest{ContainerId: "c1", Cmd: []string{"true"}, Stdout: true})
			assert.NilError(t, err)
			attach, err := s.Attach(&runtimeapi.AttachRequest{ContainerId: "c1", Stdout: true})
			assert.NilError(t, err)
			forward, err := s.PortForward(&runtimeapi.PortForwardRequest{PodSandboxId: "p1", Port: []int32{80}})
			assert.NilError(t, err)
			return []string{exec.Url, attach.Url, forward.Url}
		}
		for wait, late := range map[time.Duration]bool{0: false, 59 * time.Second: false, 61 * time.Second: true, 24 * time.Hour: true} {
			all := urls()
			time.Sleep(wait)
			for _, url := range all {
				w := httptest.NewRecorder()
				s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))
				if (w.Code == http.StatusNotFound) != late || w.Code == http.StatusOK {
					t.Errorf("%s after %s: %d", url, wait, w.Code)
				}
			}
		}
	})
}
