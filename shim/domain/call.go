package domain

import (
	"context"
	"errors"

	"libvirt.org/go/libvirt"

	"github.com/nodevirt/nodevirt/tracing"
)

// await runs fn and waits for its result or the end of ctx, or of [bounds.CallTime] if ctx has no deadline. In the
// other cases fn continues in the background until libvirtd answers or the connection is closed,
// and its result is lost. fn must own all values that it uses.
func await[T any](ctx context.Context, op, object string, fn func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	ctx, cancel := inTime(ctx)
	defer cancel()
	go func() {
		value, err := fn()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var zero T
		return zero, unanswered(ctx, op, object)
	}
}

// call awaits fn on its own connection and adds the kind to an error. It has a span if the
// context has one.
func call[T any](ctx context.Context, c *Connection, op, object string,
	fn func(*libvirt.Connect) (T, error),
) (_ T, err error) {
	var zero T
	if ctx.Err() != nil {
		return zero, expired(ctx, op, object)
	}
	ctx, end := tracing.Phase(ctx, "libvirt", op)
	defer func() { end(err) }()
	calls := c.pool()
	if calls == nil {
		return zero, &failure{op: op, object: object, kind: ErrUnavailable}
	}
	leave, err := c.enter(ctx)
	if err != nil {
		return zero, expired(ctx, op, object)
	}
	answered, err := c.open(op, object)
	if err != nil {
		leave()
		return zero, err
	}
	return await(ctx, op, object, func() (T, error) {
		defer leave() // libvirtd has answered; the caller may have given up long before
		defer answered()
		conn, err := calls.get()
		if err != nil {
			return zero, &failure{op: op, object: object, kind: ErrUnavailable, detail: err}
		}
		defer calls.put(conn)
		value, err := fn(conn)
		if err != nil {
			alive := isAlive(conn)
			if n, ok := errors.AsType[named](err); ok {
				object, err = "domain "+n.name, n.error
			}
			return zero, &failure{op: op, object: object, kind: kindOf(err, alive), detail: plain(err)}
		}
		return value, nil
	})
}

// onDomain is call with a domain, which it looks up first.
func onDomain[T any](ctx context.Context, c *Connection, op, uuid string,
	fn func(*libvirt.Domain) (T, error),
) (T, error) {
	return call(ctx, c, op, "domain "+uuid, func(conn *libvirt.Connect) (T, error) {
		var zero T
		dom, err := conn.LookupDomainByUUIDString(uuid)
		if err != nil {
			return zero, err
		}
		defer dom.Free()
		value, err := fn(dom)
		if err != nil {
			return zero, explain(dom, err)
		}
		return value, nil
	})
}

// do is onDomain for functions without a result.
func do(ctx context.Context, c *Connection, op, uuid string, fn func(*libvirt.Domain) error) error {
	_, err := onDomain(ctx, c, op, uuid, func(dom *libvirt.Domain) (struct{}, error) {
		return struct{}{}, fn(dom)
	})
	return err
}
