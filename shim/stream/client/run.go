package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/nodevirt/nodevirt/shim/stream"
)

// ErrCut is returned if a stream ended without a status from the server: the
// connection to the server was lost.
var ErrCut = errors.New("the connection to the streaming server was lost")

// maxStatus bounds the server's final status, in bytes.
const maxStatus = 64 << 10

// Run connects s to the URL of an Attach or an Exec until the server ends the
// streams or ctx ends. It returns a [stream.ExitError] for an exit code other than
// 0. A read of s.In may continue after Run has returned; its data is lost.
func Run(ctx context.Context, address string, s stream.Streams) error {
	conn, err := dial(ctx, address, remotecommand.StreamProtocolV4Name)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	last, err := openKind(conn, remotecommand.StreamTypeError)
	if err != nil {
		return err
	}
	var outputs sync.WaitGroup
	for _, o := range []struct {
		kind string
		to   io.Writer
	}{{remotecommand.StreamTypeStdout, s.Out}, {remotecommand.StreamTypeStderr, s.Err}} {
		if o.to == nil {
			continue
		}
		from, err := openKind(conn, o.kind)
		if err != nil {
			return err
		}
		outputs.Go(func() { _, _ = io.Copy(o.to, from) }) // the status carries the error
	}
	if err := inputs(conn, s); err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(last, maxStatus))
	outputs.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("read the stream's end: %w", err)
	}
	return verdict(text)
}

func openKind(conn httpstream.Connection, kind string) (httpstream.Stream, error) {
	return open(conn, map[string]string{remotecommand.StreamType: kind})
}

// inputs sends the client's input, and its terminal's sizes.
func inputs(conn httpstream.Connection, s stream.Streams) error {
	if s.In != nil {
		to, err := openKind(conn, remotecommand.StreamTypeStdin)
		if err != nil {
			return err
		}
		go func() {
			_, _ = io.Copy(to, s.In)
			_ = to.Close()
		}()
	}
	if !s.TTY {
		return nil
	}
	to, err := openKind(conn, remotecommand.StreamTypeResize)
	if err != nil {
		return err
	}
	if s.Resize != nil {
		go func() {
			encoder := json.NewEncoder(to)
			for size := range s.Resize {
				if encoder.Encode(size) != nil {
					return
				}
			}
		}()
	}
	return nil
}

// verdict converts the server's final status to an error.
func verdict(text []byte) error {
	if len(text) == 0 {
		return ErrCut
	}
	var s metav1.Status
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("read the stream's end: %w", err)
	}
	if s.Status == metav1.StatusSuccess {
		return nil
	}
	if s.Reason == remotecommand.NonZeroExitCodeReason && s.Details != nil {
		for _, c := range s.Details.Causes {
			if code, err := strconv.Atoi(c.Message); err == nil && c.Type == remotecommand.ExitCodeCauseType {
				return &stream.ExitError{Code: code}
			}
		}
	}
	return errors.New(s.Message)
}
