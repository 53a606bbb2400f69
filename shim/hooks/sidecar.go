package hooks

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/nodevirt/nodevirt/shim/hooks/wire"
)

// The bounds of what a sidecar answers, in bytes.
const (
	maxReply   = 4 << 20 // a message
	maxHeaders = 16 << 10
	maxError   = 200 // the text of an error
)

// sidecar is the connection to a sidecar that said which hooks it has.
type sidecar struct {
	name    string // its container's
	conn    *grpc.ClientConn
	version string
	hooks   map[string]int32 // priorities by hook
}

// retryPause is the time between attempts to reach a sidecar that does not listen yet.
const retryPause = 200 * time.Millisecond

// await connects to a sidecar, which may not have started to listen yet.
func await(ctx context.Context, folder, name string) (*sidecar, error) {
	for {
		s, err := open(ctx, folder, name)
		if err == nil || status.Code(err) != codes.Unavailable {
			return s, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for hook sidecar %s, whose log may say why: %w", name, err)
		case <-time.After(retryPause):
		}
	}
}

// open connects to a sidecar and asks for its hooks.
func open(ctx context.Context, folder, name string) (_ *sidecar, err error) {
	conn, err := grpc.NewClient("passthrough:///"+name,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return connect(ctx, folder, name) }),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)))
	if err != nil {
		return nil, fmt.Errorf("connect to hook sidecar %s: %w", name, err)
	}
	s := &sidecar{name: name, conn: conn, hooks: map[string]int32{}}
	defer func() {
		if err != nil {
			_ = conn.Close() // it only drops the connection
		}
	}()
	var info wire.InfoResult
	if err := s.invoke(ctx, wire.MethodInfo, &wire.InfoParams{}, &info); err != nil {
		return nil, err
	}
	for _, version := range wire.Versions() {
		if slices.Contains(info.GetVersions(), version) {
			s.version = version
			break
		}
	}
	if s.version == "" {
		return nil, fmt.Errorf("hook sidecar %s speaks none of the protocol's versions %v", name, wire.Versions())
	}
	for _, p := range info.GetHookPoints() {
		s.hooks[p.GetName()] = p.GetPriority()
	}
	return s, nil
}

// has reports whether the sidecar subscribed to a hook that its version has.
func (s *sidecar) has(hook string) bool {
	_, has := s.hooks[hook]
	return has && wire.Has(s.version, hook)
}

// call calls a hook.
func (s *sidecar) call(ctx context.Context, hook string, in, out proto.Message) error {
	return s.invoke(ctx, wire.Method(s.version, hook), in, out)
}

func (s *sidecar) invoke(ctx context.Context, method string, in, out proto.Message) error {
	err := s.conn.Invoke(ctx, method, in, out)
	if err == nil {
		return nil
	}
	// The text is the sidecar's.
	return status.Errorf(status.Code(err), "hook sidecar %s: %.*q", s.name, maxError, status.Convert(err).Message())
}
