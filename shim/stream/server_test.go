package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/stream"
	"github.com/nodevirt/nodevirt/shim/stream/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echoes is a VM whose commands, console and ports echo their input.
type echoes struct {
	began, ended chan string
}

func newEchoes() echoes { return echoes{make(chan string, 100), make(chan string, 100)} }

func (e echoes) Exec(_ context.Context, id string, command []string, s stream.Streams) error {
	fmt.Fprintf(s.Out, "%s runs %q\n", id, command)
	if s.Err != nil {
		fmt.Fprint(s.Err, "complaint")
	}
	switch command[0] {
	case "cat":
		_, err := io.Copy(s.Out, s.In)
		return err
	case "size":
		size := <-s.Resize
		fmt.Fprintf(s.Out, "%d x %d", size.Width, size.Height)
	case "false":
		return &stream.ExitError{Code: 3}
	case "refused":
		return errors.New("no such luck")
	}
	return nil
}

func (e echoes) Attach(ctx context.Context, id string, s stream.Streams) error {
	fmt.Fprint(s.Out, "attached")
	e.began <- id
	<-ctx.Done()
	e.ended <- id
	return nil
}

func (e echoes) Forward(_ context.Context, id string, port uint16, c io.ReadWriteCloser) error {
	if port == 1 {
		return errors.New("connection refused")
	}
	fmt.Fprintf(c, "%s:%d ", id, port)
	_, err := io.Copy(c, c)
	return err
}

// machines are what a server needs.
type machines interface {
	Exec(context.Context, string, []string, stream.Streams) error
	Attach(context.Context, string, stream.Streams) error
	Forward(context.Context, string, uint16, io.ReadWriteCloser) error
}

func newServer(t *testing.T, m machines, idle time.Duration) *stream.Server {
	t.Helper()
	s, err := stream.Listen(t.Context(), stream.Options{
		Address: "127.0.0.1:0", IdleTimeout: idle, Machines: m, Logger: slog.New(slog.DiscardHandler),
	})
	assert.NilError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() {
		assert.NilError(t, s.Close())
		assert.NilError(t, <-served)
	})
	return s
}

func TestExec(t *testing.T) {
	s := newServer(t, newEchoes(), 0)
	run := func(r *runtimeapi.ExecRequest, in io.Reader, sizes ...stream.Size) (out, errOut string, err error) {
		r.ContainerId, r.Stdin, r.Stdout, r.Stderr = "c1", in != nil, true, !r.Tty
		reply, err := s.Exec(r)
		assert.NilError(t, err)
		resize := make(chan stream.Size, len(sizes))
		for _, size := range sizes {
			resize <- size
		}
		close(resize)
		var o, e bytes.Buffer
		streams := stream.Streams{In: in, Out: &o, TTY: r.Tty, Resize: resize}
		if !r.Tty {
			streams.Err = &e
		}
		err = client.Run(t.Context(), reply.Url, streams)
		return o.String(), e.String(), err
	}
	out, errOut, err := run(&runtimeapi.ExecRequest{Cmd: []string{"cat", "-"}}, strings.NewReader("typed"))
	if out != "c1 runs [\"cat\" \"-\"]\ntyped" || errOut != "complaint" || err != nil {
		t.Errorf("%q, %q, %v", out, errOut, err)
	}
	out, _, err = run(&runtimeapi.ExecRequest{Cmd: []string{"size"}, Tty: true}, nil, stream.Size{Width: 80, Height: 25})
	if !strings.HasSuffix(out, "80 x 25") || err != nil {
		t.Errorf("%q, %v", out, err)
	}
	_, _, err = run(&runtimeapi.ExecRequest{Cmd: []string{"false"}}, nil)
	if exit, ok := errors.AsType[*stream.ExitError](err); !ok || exit.Code != 3 {
		t.Errorf("a command that fails: %v", err)
	}
	if _, _, err = run(&runtimeapi.ExecRequest{Cmd: []string{"refused"}}, nil); err == nil || !strings.Contains(err.Error(), "no such luck") {
		t.Errorf("a command that can't be run: %v", err)
	}
	big := strings.Repeat("0123456789abcdef", 1<<18)
	if out, _, err = run(&runtimeapi.ExecRequest{Cmd: []string{"cat"}}, strings.NewReader(big)); !strings.HasSuffix(out, big) || err != nil {
		t.Errorf("%d bytes came back of %d, %v", len(out), len(big), err)
	}
}

func TestATokenIsGoodForOneConnection(t *testing.T) {
	s := newServer(t, newEchoes(), 0)
	reply, err := s.Exec(&runtimeapi.ExecRequest{ContainerId: "c1", Cmd: []string{"true"}, Stdout: true})
	assert.NilError(t, err)
	if !strings.HasPrefix(reply.Url, "http://127.0.0.1:") {
		t.Errorf("the URL is %s", reply.Url)
	}
	assert.NilError(t, client.Run(t.Context(), reply.Url, stream.Streams{Out: io.Discard}))
	for _, url := range []string{
		reply.Url, strings.Replace(reply.Url, "/exec/", "/attach/", 1),
		"http://" + s.Address() + "/exec/AAAAAAAA", "http://" + s.Address() + "/", "http://" + s.Address() + "/exec/",
	} {
		if err := client.Run(t.Context(), url, stream.Streams{Out: io.Discard}); err == nil || !strings.Contains(err.Error(), "404") {
			t.Errorf("%s: %v", url, err)
		}
	}
	// One of a kind is none of another, and is used up by the attempt.
	reply, err = s.Exec(&runtimeapi.ExecRequest{ContainerId: "c1", Cmd: []string{"true"}, Stdout: true})
	assert.NilError(t, err)
	for _, url := range []string{strings.Replace(reply.Url, "/exec/", "/portforward/", 1), reply.Url} {
		if err := client.Run(t.Context(), url, stream.Streams{Out: io.Discard}); err == nil || !strings.Contains(err.Error(), "404") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// attached attaches a client that says nothing, and returns when it is there.
func attached(ctx context.Context, t *testing.T, s *stream.Server, m echoes) (ended <-chan error) {
	t.Helper()
	reply, err := s.Attach(&runtimeapi.AttachRequest{ContainerId: "c1", Stdout: true})
	assert.NilError(t, err)
	done := make(chan error, 1)
	go func() { done <- client.Run(ctx, reply.Url, stream.Streams{Out: io.Discard}) }()
	<-m.began
	return done
}

func TestWhatAClientThatLeftHadAskedForEnds(t *testing.T) {
	m := newEchoes()
	s := newServer(t, m, 0)
	ctx, leave := context.WithCancel(t.Context())
	ended := attached(ctx, t, s, m)
	leave()
	<-m.ended
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestAnIdleConnectionIsCut(t *testing.T) {
	// Cut before its streams have come, a client leaves the server to wait half a minute for them.
	s := newServer(t, newEchoes(), 3*time.Second)
	reply, err := s.Attach(&runtimeapi.AttachRequest{ContainerId: "c1", Stdout: true})
	assert.NilError(t, err)
	// On a machine that is slow enough it is cut before it is there at all.
	err = client.Run(t.Context(), reply.Url, stream.Streams{Out: io.Discard})
	t.Log("cut:", err)
}

func TestTheEndOfTheServerCutsItsClients(t *testing.T) {
	m := newEchoes()
	s, err := stream.Listen(t.Context(), stream.Options{
		Address: "127.0.0.1:0", Machines: m, Logger: slog.New(slog.DiscardHandler),
	})
	assert.NilError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	ended := attached(t.Context(), t, s, m)
	assert.NilError(t, s.Close())
	assert.NilError(t, <-served)
	if len(m.ended) != 1 {
		t.Error("Close returned while a client was attached")
	}
	<-ended
	if _, err := http.Get("http://" + s.Address()); err == nil {
		t.Error("the server still answers")
	}
}

func TestListenRefusesAnAddressInUse(t *testing.T) {
	s := newServer(t, newEchoes(), 0)
	_, err := stream.Listen(t.Context(), stream.Options{Address: s.Address(), Machines: newEchoes(), Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "choose another stream.address") {
		t.Error(err)
	}
}
