// Package client connects to a streaming server by SPDY, as the kubelet and crictl
// do with the URL of an Attach, Exec or PortForward. The nodevirt command and tests use it.
//
// It owns the client's side of the protocols, and leaves their frames to k8s.io/streaming. Unlike
// k8s.io/client-go's remotecommand it distinguishes a server that ended a stream
// from one that was lost ([ErrCut]), and unlike its portforward it passes on a
// close of either side.
package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// maxAnswer bounds what is read of an error response, in bytes.
const maxAnswer = 4096

// dial opens a connection of a protocol. A URL from CRI is valid for one connection.
func dial(ctx context.Context, address, protocol string) (httpstream.Connection, error) {
	direct := func(*http.Request) (*url.URL, error) { return nil, nil }
	transport, err := spdy.NewRoundTripperWithProxy(nil, direct)
	if err != nil {
		return nil, fmt.Errorf("prepare a stream: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, nil)
	if err != nil {
		return nil, fmt.Errorf("stream by %s: %w", address, err)
	}
	request.Header.Set(httpstream.HeaderProtocolVersion, protocol)
	reply, err := transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("connect to the streaming server: %w", err)
	}
	if reply.StatusCode != http.StatusSwitchingProtocols {
		defer reply.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(reply.Body, maxAnswer)) // the status says enough
		return nil, fmt.Errorf("the streaming server refuses the connection: %s: %s", reply.Status, strings.TrimSpace(string(text)))
	}
	conn, err := transport.NewConnection(reply)
	if err != nil {
		return nil, fmt.Errorf("connect to the streaming server: %w", err)
	}
	return conn, nil
}

// open opens a stream of a connection.
func open(conn httpstream.Connection, headers map[string]string) (httpstream.Stream, error) {
	h := http.Header{}
	for name, value := range headers {
		h.Set(name, value)
	}
	s, err := conn.CreateStream(h)
	if err != nil {
		return nil, fmt.Errorf("open a stream: %w", err)
	}
	return s, nil
}
