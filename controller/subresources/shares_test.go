package subresources

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/internal/bounds"
)

// TestStreamsAreShared: one user, or the users of one namespace, leave streams to others, and the connections of all streams
// leave most to admission.
func TestStreamsAreShared(t *testing.T) {
	s := newShares()
	open, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	serve := s.counted(func(context.Context, *call) error {
		open <- struct{}{}
		<-release
		return nil
	})
	begin := func(by, namespace string) error {
		refused := make(chan error, 1)
		go func() {
			refused <- serve(t.Context(), &call{caller: &user.DefaultInfo{Name: by}, namespace: namespace})
		}()
		select {
		case <-open:
			return nil
		case err := <-refused:
			return err
		}
	}
	for n := range bounds.UserStreams {
		assert.NilError(t, begin("eve", fmt.Sprint("namespace-", n)))
	}
	err := begin("eve", "another")
	assert.Assert(t, apierrors.IsTooManyRequests(err), "%v", err)
	for n := range bounds.NamespaceStreams {
		assert.NilError(t, begin(fmt.Sprint("user-", n), "full"))
	}
	err = begin("ann", "full")
	assert.Assert(t, apierrors.IsTooManyRequests(err), "%v", err)
	assert.NilError(t, begin("ann", "namespace-0"), "a stream of another user to another namespace")
	for n := 0; ; n++ {
		if begin(fmt.Sprint("other-", n), fmt.Sprint("other-", n)) != nil {
			break
		}
		assert.Assert(t, n < bounds.Streams, "the sum has no bound")
	}
	assert.Assert(t, bounds.Streams <= bounds.Connections/2)
}

// TestStreamsAreReleased: a stream that has ended, or failed, is no longer counted.
func TestStreamsAreReleased(t *testing.T) {
	s := newShares()
	fails := s.counted(func(context.Context, *call) error { return errors.New("no VM") })
	for range 2 * bounds.UserStreams {
		assert.Error(t, fails(t.Context(), &call{caller: &user.DefaultInfo{Name: "ann"}, namespace: "web"}), "no VM")
	}
	assert.Equal(t, s.users.Used()+s.namespaces.Used(), int64(0))
}

// TestStalledCaller: a caller that reads nothing loses its stream.
func TestStalledCaller(t *testing.T) {
	failed := make(chan error, 1)
	pair(t, func(s *socket) {
		s.stall = 50 * time.Millisecond
		for {
			if _, err := s.Write(make([]byte, chunk)); err != nil {
				failed <- err
				_ = s.Close()
				return
			}
		}
	})
	if err := <-failed; err == nil {
		t.Error("a write to a caller that reads nothing succeeds")
	}
}

// sources are a VM whose node answers with a picture.
type sources struct {
	instances
	write   func(to io.Writer) error
	control func(most int) ([]byte, error)
}

func (s *sources) running(context.Context, *call) (*kubevirt.VirtualMachineInstance, *corev1.Pod, error) {
	vmi := &kubevirt.VirtualMachineInstance{}
	vmi.Status.Conditions = []kubevirt.VirtualMachineInstanceCondition{
		{Type: kubevirt.VirtualMachineInstanceAgentConnected, Status: corev1.ConditionTrue},
	}
	return vmi, &corev1.Pod{}, nil
}

func (s *sources) Control(_ context.Context, _ *corev1.Pod, most int, _ string, _ ...string) ([]byte, error) {
	if s.control == nil {
		return nil, errors.New("not streamed")
	}
	return s.control(most)
}

func (s *sources) Copy(_ context.Context, _ *corev1.Pod, to io.Writer, _ string, _ ...string) error {
	return s.write(to)
}

// TestScreenshotPassesThrough: the controller holds no picture, replies an error that comes first, and breaks off an answer
// that is too long or fails later.
func TestScreenshotPassesThrough(t *testing.T) {
	part := bytes.Repeat([]byte{'p'}, 1<<20)
	parts := func(n int, then error) func(io.Writer) error {
		return func(to io.Writer) error {
			for range n {
				if _, err := to.Write(part); err != nil {
					return err
				}
			}
			return then
		}
	}
	for name, tt := range map[string]struct {
		write  func(io.Writer) error
		code   int
		length int
		broken bool
	}{
		"a picture":             {parts(3, nil), http.StatusOK, 3 << 20, false},
		"no display":            {parts(0, errors.New("the VM has no display")), http.StatusInternalServerError, 0, false},
		"one that breaks off":   {parts(2, errors.New("the node has gone")), http.StatusOK, 0, true},
		"more than the longest": {parts(bounds.Screenshot>>20+1, nil), http.StatusOK, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			from := &sources{write: tt.write}
			b := &controls{nodes: from, found: from}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := b.screenshot(r.Context(), &call{Request: r, w: w}); err != nil {
					http.Error(w, err.Error(), http.StatusInternalServerError)
				}
			}))
			server.Config.ErrorLog = nil
			defer server.Close()
			reply, err := http.Get(server.URL)
			assert.NilError(t, err)
			defer reply.Body.Close()
			n, err := io.Copy(io.Discard, reply.Body)
			assert.Equal(t, reply.StatusCode, tt.code)
			assert.Equal(t, err != nil, tt.broken, "%v", err)
			if tt.length > 0 {
				assert.Equal(t, int(n), tt.length)
				assert.Equal(t, reply.Header.Get("Content-Type"), "image/png")
			}
		})
	}
}

// TestReportsAreShared: users who ask for many agents' reports have the controller hold two of a namespace, each of a bounded
// size, and leave reports to others.
func TestReportsAreShared(t *testing.T) {
	const many = 20
	begun, release := make(chan int, many), make(chan struct{})
	from := &sources{control: func(most int) ([]byte, error) {
		begun <- most
		<-release
		return []byte("{}"), nil
	}}
	b := newControls(from, from)
	ended := make(chan error, many+1)
	ask := func(namespace string) {
		ended <- b.agentReport("users")(t.Context(), &call{Request: httptest.NewRequest(http.MethodGet, "/", nil), w: httptest.NewRecorder(), namespace: namespace})
	}
	for range many {
		go ask("greedy")
	}
	for range bounds.NamespaceReports {
		assert.Equal(t, <-begun, bounds.Report)
	}
	go ask("neighbour")
	assert.Equal(t, <-begun, bounds.Report) // it does not wait for the others
	assert.Equal(t, len(begun), 0, "further reports of the namespace are held")
	close(release)
	for range many + 1 {
		assert.NilError(t, <-ended)
	}
}
