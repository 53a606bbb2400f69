package agent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/nodevirt/nodevirt/internal/turns"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// socket is a path for a socket, which are short.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "s")
}

// impostor serves as an agent, one connection at a time as QEMU does.
func impostor(t *testing.T, serve func(net.Conn)) (*Agent, *link) {
	t.Helper()
	return impostorOf(t, "default", turns.New("others", 1, 1), serve)
}

// impostorOf is an impostor of a VM in a namespace.
func impostorOf(t *testing.T, namespace string, large Large, serve func(net.Conn)) (*Agent, *link) {
	t.Helper()
	path := socket(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
			c.Close()
		}
	})
	o := Options{Socket: path, Large: large, Namespace: namespace}
	link := newLink(o)
	link.patience = patience{3 * time.Second, 3 * time.Second, 3 * time.Second, largeGrace}
	a := join(link, o)
	t.Cleanup(func() {
		l.Close()
		a.Port.Report(Absent) // hangs up
		serving.Wait()
	})
	return a, link
}

var syncID = regexp.MustCompile(`"id":(\d+)`)

// synced answers the synchronization, and then each line by the next answer.
func synced(answers ...string) func(net.Conn) {
	return func(c net.Conn) {
		in := bufio.NewReader(c)
		if speak(c, in, answers...) {
			_, _ = io.Copy(io.Discard, in)
		}
	}
}

// speak is synced until all answers are given, and reports whether they are.
func speak(c net.Conn, in *bufio.Reader, answers ...string) bool {
	line, err := in.ReadString('\n')
	if err != nil {
		return false
	}
	fmt.Fprintf(c, "old words\n\xff{\"return\": 1}\n\xff{\"return\": %s}\n", syncID.FindStringSubmatch(line)[1])
	for _, answer := range answers {
		if _, err := in.ReadString('\n'); err != nil {
			return false
		}
		_, _ = io.WriteString(c, answer)
	}
	return true
}

const accepted = `{"return": {"pid": 7}}` + "\n"

func TestHostileAgents(t *testing.T) {
	endless := func(text string) func(net.Conn) {
		return func(c net.Conn) {
			for {
				if _, err := io.WriteString(c, text); err != nil {
					return
				}
			}
		}
	}
	for _, g := range []struct {
		name  string
		serve func(net.Conn)
		want  error
	}{
		{"noise without end", endless(strings.Repeat("\x00\x01", 4096)), ErrSilent},
		{"delimiters without end", endless(strings.Repeat("\xff", 1<<16)), ErrGarbled},
		{"syncs without end", endless("\xff{\"return\": 1}\n"), ErrSilent},
		{"no words at all", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }, ErrSilent},
		{"gone at once", func(net.Conn) {}, ErrGone},
		{"gone before the answer", func(c net.Conn) {
			in := bufio.NewReader(c)
			line, _ := in.ReadString('\n')
			fmt.Fprintf(c, "\xff{\"return\": %s}\n", syncID.FindStringSubmatch(line)[1])
			_, _ = in.ReadString('\n')
		}, ErrGone},
		{"no answer", synced(), ErrSilent},
		{"no status", synced(accepted), ErrSilent},
		{"no JSON", synced("yes\n"), ErrGarbled},
		{"a long line", synced(strings.Repeat("x", smallAnswer+1)), ErrGarbled},
		{"process 0", synced(`{"return": {"pid": 0}}` + "\n"), ErrGarbled},
		{"an end of nothing", synced(accepted, `{"return": {"exited": true}}`+"\n"), ErrGarbled},
		{"too much output", synced(accepted, `{"return": {"out-data": "`+strings.Repeat("A", maxOutput)), ErrGarbled},
		{"another agent", synced(accepted, `{"error": {"class": "GenericError", "desc": "PID 7 does not exist"}}`+"\n"), ErrGone},
		{"exec is disabled", synced(`{"error": {"class": "CommandNotFound", "desc": "disabled"}}` + "\n"), ErrDisabled},
	} {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			a, _ := impostor(t, g.serve)
			if _, err := a.Commands.Exec(t.Context(), Command{Args: []string{"true"}}); !errors.Is(err, g.want) {
				t.Errorf("error %v; want %v", err, g.want)
			}
			a.Facts.Refresh(t.Context())
			if s := a.Facts.State(); s.Problem == "" && !s.Updated.IsZero() {
				t.Errorf("state %+v", s)
			}
		})
	}
}

// An agent that answers with the password that it was given cannot put it into an error.
func TestPasswordsStaySecret(t *testing.T) {
	for answer, want := range map[string]error{
		`{"error": {"class": "GenericError", "desc": "hunter2"}}`:             nil,
		`{"error": {"class": "CommandNotFound", "desc": "hunter2 disabled"}}`: ErrDisabled,
		`{"return": hunter2}`: ErrGarbled,
		`hunter2`:             ErrGarbled,
	} {
		a, _ := impostor(t, synced(answer+"\n"))
		err := a.Actions.SetPassword(t.Context(), "root", "hunter2")
		if err == nil || !strings.Contains(err.Error(), "guest-set-user-password") || strings.Contains(err.Error(), "hunter") || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v", answer, err)
		}
	}
}

func TestSetKeys(t *testing.T) {
	a, _ := impostor(t, synced(`{"return": {}}`+"\n", `{"error": {"class": "GenericError", "desc": "failed to lookup user 'x'"}}`+"\n",
		`{"error": {"class": "CommandNotFound", "desc": "no"}}`+"\n"))
	if err := a.Actions.SetKeys(t.Context(), "x", []string{"ssh-rsa AAAA"}); err != nil {
		t.Error(err)
	}
	if err := a.Actions.SetKeys(t.Context(), "x", nil); err == nil || !strings.Contains(err.Error(), "failed to lookup user") {
		t.Error(err)
	}
	if err := a.Actions.SetKeys(t.Context(), "x", nil); !errors.Is(err, ErrDisabled) || !strings.Contains(err.Error(), "guest-ssh-add-authorized-keys") {
		t.Error(err)
	}
}

func TestAnswersInPieces(t *testing.T) {
	large := bytes.Repeat([]byte("x"), 3<<20)
	a, link := impostor(t, synced(accepted, `{"return": {"exited": false}}`+"\n",
		fmt.Sprintf(`{"return": {"exited": true, "exitcode": 5, "out-data": "%s"}}`+"\n", strings.Repeat("eHh4", 1<<20))))
	r, err := a.Commands.Exec(t.Context(), Command{Args: []string{"true"}})
	if err != nil || r.Code != 5 || !bytes.Equal(r.Stdout, large) {
		t.Errorf("code %d, %d bytes, %v", r.Code, len(r.Stdout), err)
	}
	if _, err := link.large.Take(t.Context(), "default", func() { t.Error("the turn for large answers was kept") }); err != nil {
		t.Error(err)
	}
}

// TestLyingAgents: agents of one namespace whose large answers do not end keep no other namespace's from being read.
func TestLyingAgents(t *testing.T) {
	large := turns.New("others", 2, 1)
	ended := make(chan error, 2)
	for range 2 {
		a, link := impostorOf(t, "liars", large, drip)
		link.patience.grace = time.Hour
		go func() {
			_, err := a.Commands.Exec(t.Context(), Command{Args: []string{"true"}})
			ended <- err
		}()
	}
	honest, _ := impostorOf(t, "neighbour", large, synced(accepted,
		fmt.Sprintf(`{"return": {"exited": true, "exitcode": 5, "out-data": "%s"}}`+"\n", strings.Repeat("eHh4", 1<<20))))
	// One of the liars has its turn by now, or waits for it.
	if r, err := honest.Commands.Exec(t.Context(), Command{Args: []string{"true"}}); err != nil || r.Code != 5 {
		t.Errorf("an exec of another namespace: code %d, %v", r.Code, err)
	}
	if len(ended) > 0 {
		t.Errorf("a liar ended before its neighbour: %v", <-ended)
	}
}

// TestSlowAgent: a large answer that comes too slowly ends, though the agent is never silent.
func TestSlowAgent(t *testing.T) {
	a, link := impostor(t, drip)
	link.patience.grace = time.Millisecond
	if _, err := a.Commands.Exec(t.Context(), Command{Args: []string{"true"}}); !errors.Is(err, ErrSilent) {
		t.Errorf("%v", err)
	}
}

// drip answers with more than a MiB, and then a byte at a time.
func drip(c net.Conn) {
	large := `{"return": {"exited": true, "exitcode": 0, "out-data": "` + strings.Repeat("eHh4", 1<<18) + "eHh4"
	if !speak(c, bufio.NewReader(c), accepted, large) {
		return
	}
	for {
		if _, err := io.WriteString(c, "e"); err != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// A call that waits while another one finds the agent silent does not wait as long again.
func TestWaitsDoNotAddUp(t *testing.T) {
	link := newLink(Options{})
	join(link, Options{})
	before := time.Now()
	link.hangUp(true)
	if err := link.ready(before); !errors.Is(err, ErrSilent) {
		t.Errorf("who waited meanwhile: %v", err)
	}
	if err := link.ready(time.Now()); err != nil {
		t.Errorf("who comes later: %v", err)
	}
}

func TestAbsence(t *testing.T) {
	a, link := impostor(t, synced(accepted))
	a.Port.Report(Absent)
	if _, err := a.Commands.Exec(t.Context(), Command{Args: []string{"true"}}); !errors.Is(err, ErrAbsent) {
		t.Errorf("without an agent: %v", err)
	}
	a.Port.Report(Present)
	failed := make(chan error)
	go func() {
		_, err := a.Commands.Exec(t.Context(), Command{Args: []string{"true"}})
		failed <- err
	}()
	for { // until the agent is being asked
		link.mu.Lock()
		asked := link.open != nil
		link.mu.Unlock()
		if asked {
			break
		}
		time.Sleep(time.Millisecond)
	}
	a.Port.Report(Absent)
	if err := <-failed; !errors.Is(err, ErrGone) && !errors.Is(err, ErrAbsent) {
		t.Errorf("an agent that went away: %v", err)
	}
	absent := New(Options{Socket: socket(t)})
	if _, err := absent.Commands.Exec(t.Context(), Command{Args: []string{"true"}}); !errors.Is(err, ErrGone) {
		t.Errorf("without a machine: %v", err)
	}
}

func TestDoubt(t *testing.T) {
	a := New(Options{})
	first := a.Port.Doubt()
	a.Port.Report(Present) // an event, newer than what was asked for
	if first(Absent); a.Facts.State().Presence != Present {
		t.Errorf("old news made the agent %s", a.Facts.State().Presence)
	}
	if a.Port.Doubt()(Absent); a.Facts.State().Presence != Absent || a.Facts.State().Since.IsZero() {
		t.Errorf("state %+v", a.Facts.State())
	}
}

func TestTooManyCommands(t *testing.T) {
	a := New(Options{})
	for range maxExecs {
		if err := a.Commands.admit(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Commands.Exec(t.Context(), Command{Args: []string{"true"}}); !errors.Is(err, ErrBusy) {
		t.Errorf("one command more: %v", err)
	}
}

// countingAgent counts how often it is asked for its state.
type countingAgent struct{ asked atomic.Int32 }

func (c *countingAgent) State(context.Context) (State, error) {
	c.asked.Add(1)
	return State{Updated: time.Now()}, nil
}

// TestHasten: a guest that has got something is asked at once, and again after the first pause, however long it runs.
func TestHasten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, asked := New(Options{}).Facts, new(countingAgent)
		f.agent = asked
		gone := make(chan struct{})
		go f.Watch(t.Context(), gone)
		time.Sleep(time.Hour)
		before := asked.asked.Load()
		f.Hasten()
		synctest.Wait()
		at := asked.asked.Load()
		time.Sleep(firstPause + time.Second)
		if soon := asked.asked.Load(); at != before+1 || soon != at+1 {
			t.Errorf("asked %d times, then %d, and %d soon after", before, at, soon)
		}
		close(gone)
	})
}

func TestDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Options{Socket: filepath.Join(t.TempDir(), "none")})
		if a.Facts.Due() {
			t.Error("an unknown agent is due")
		}
		if a.Port.Report(Present); !a.Facts.Due() {
			t.Error("an agent that has come is not due")
		}
		a.Facts.Refresh(context.Background())
		if a.Facts.Due() || a.Facts.State().Problem == "" {
			t.Errorf("after the first question: due %t, %+v", a.Facts.Due(), a.Facts.State())
		}
		if time.Sleep(factsAge + 1); !a.Facts.Due() {
			t.Error("never again due")
		}
	})
}
