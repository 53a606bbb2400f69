package subresources

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/exec"
	kubevirt "kubevirt.io/api/core/v1"
)

// nodeEnd is a console, as its node has it.
type nodeEnd struct {
	say    *io.PipeWriter
	typed  *io.PipeReader
	closed chan struct{}
}

func console() (*connection, nodeEnd) {
	fromNode, say := io.Pipe()
	typed, toNode := io.Pipe()
	end := nodeEnd{say, typed, make(chan struct{}, 8)}
	return &connection{Reader: fromNode, Writer: toNode, cancel: func() {
		_ = toNode.Close()
		_ = fromNode.Close()
		end.closed <- struct{}{}
	}}, end
}

// caller serves a console to a client.
func caller(t *testing.T, first *connection, next func(context.Context) *connection) *websocket.Conn {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := (&call{Request: r, w: w}).join(r.Context(), first, next); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	client, _, err := websocket.DefaultDialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if err := client.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return client
}

func hears(t *testing.T, client *websocket.Conn, want string) {
	t.Helper()
	if _, got, err := client.ReadMessage(); err != nil || string(got) != want {
		t.Fatalf("the client hears %q, %v; want %q", got, err, want)
	}
}

// TestConsoleFollows: a caller stays connected to a guest that moves, in both directions.
func TestConsoleFollows(t *testing.T) {
	first, source := console()
	second, target := console()
	left := []*connection{second}
	client := caller(t, first, func(context.Context) *connection {
		if len(left) == 0 {
			return nil
		}
		next := left[0]
		left = left[1:]
		return next
	})
	go func() { _, _ = io.WriteString(source.say, "before") }()
	hears(t, client, "before")
	_ = source.typed.CloseWithError(io.EOF)
	_ = source.say.Close()
	go func() { _, _ = io.WriteString(target.say, "after") }()
	hears(t, client, "after")
	<-source.closed
	if err := client.WriteMessage(websocket.BinaryMessage, []byte("typed")); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(target.typed, got); err != nil || string(got) != "typed" {
		t.Errorf("the target hears %q, %v", got, err)
	}
	_ = target.say.Close()
	if _, _, err := client.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("the end: %v", err)
	}
	<-target.closed
}

// TestTakenOverConsole: a caller whose console a newer one has does not follow.
func TestTakenOverConsole(t *testing.T) {
	first, source := console()
	client := caller(t, first, func(context.Context) *connection {
		t.Error("it follows")
		return nil
	})
	_ = source.say.CloseWithError(exec.CodeExitError{Err: io.EOF, Code: codeTakenOver})
	if _, _, err := client.ReadMessage(); err == nil || websocket.IsCloseError(err, websocket.CloseNormalClosure) {
		t.Errorf("the end: %v", err)
	}
	<-source.closed
}

// TestMoved: a guest is followed only if a migration moves it, and not for ever.
func TestMoved(t *testing.T) {
	start := metav1.Now()
	vmi := func(m *kubevirt.VirtualMachineInstanceMigrationState) *kubevirt.VirtualMachineInstance {
		v := &kubevirt.VirtualMachineInstance{}
		v.Status.Phase, v.Status.MigrationState = kubevirt.Running, m
		return v
	}
	state := func(completed, failed bool) *kubevirt.VirtualMachineInstance {
		return vmi(&kubevirt.VirtualMachineInstanceMigrationState{
			StartTimestamp: &start, SourcePod: "a", TargetPod: "b", Completed: completed, Failed: failed,
		})
	}
	ended := state(true, false)
	ended.Status.Phase = kubevirt.Succeeded
	moving := state(false, false)
	for name, tt := range map[string]struct {
		from  string
		views []*kubevirt.VirtualMachineInstance // the last one again and again
		want  bool
		after time.Duration
	}{
		"moved":                     {"a", slices.Concat(slices.Repeat([]*kubevirt.VirtualMachineInstance{moving}, 3), []*kubevirt.VirtualMachineInstance{state(true, false)}), true, 3 * movePoll},
		"has moved":                 {"a", []*kubevirt.VirtualMachineInstance{state(true, false)}, true, 0},
		"moved long ago, and ended": {"b", []*kubevirt.VirtualMachineInstance{state(true, false)}, false, 0},
		"failed":                    {"a", []*kubevirt.VirtualMachineInstance{moving, state(true, true)}, false, movePoll},
		"stopped":                   {"a", []*kubevirt.VirtualMachineInstance{moving, ended}, false, movePoll},
		"gone":                      {"a", []*kubevirt.VirtualMachineInstance{moving, nil}, false, movePoll},
		"for ever":                  {"a", []*kubevirt.VirtualMachineInstance{moving}, false, moveTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, looks := time.Now(), 0
				got := moved(t.Context(), func(context.Context) *kubevirt.VirtualMachineInstance {
					v := tt.views[min(looks, len(tt.views)-1)]
					looks++
					return v
				}, tt.from)
				if (got != nil) != tt.want || time.Since(begun) != tt.after {
					t.Errorf("%t after %s", got != nil, time.Since(begun))
				}
			})
		})
	}
}
