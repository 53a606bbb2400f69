package csi

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// calls handles each call's error: it gives it a code, and logs it.
type calls struct{ log *slog.Logger }

func (c calls) handle(ctx context.Context, r any, info *grpc.UnaryServerInfo, do grpc.UnaryHandler) (any, error) {
	reply, err := do(ctx, r)
	if err == nil {
		return reply, nil
	}
	if status.Code(err) == codes.Unknown {
		code := codes.Internal
		if errors.Is(err, fs.ErrNotExist) {
			code = codes.NotFound
		}
		err = status.Error(code, err.Error())
	}
	c.log.Warn("call failed", "call", info.FullMethod, "error", err)
	return nil, err
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// busy has the objects that a call works on. A second call on one is refused, and repeated by its caller.
type busy struct {
	mu  sync.Mutex
	ids map[string]bool
}

func newBusy() *busy { return &busy{ids: map[string]bool{}} }

// take reserves an object until release is called.
func (b *busy) take(id string) (release func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ids[id] {
		return nil, status.Errorf(codes.Aborted, "another call works on %s: repeat this one", id)
	}
	b.ids[id] = true
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.ids, id)
	}, nil
}
