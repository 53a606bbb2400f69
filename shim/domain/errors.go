package domain

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"libvirt.org/go/libvirt"
)

// What a call of [Driver] can fail with, to be told apart with errors.Is.
var (
	// ErrNotFound means that libvirtd knows no such domain. It is not of the kind
	// errdefs.ErrNotFound: that tells a CRI client that its container is gone.
	ErrNotFound = errdefs.ErrFailedPrecondition.WithMessage("no such domain")
	// ErrNotRunning means that the operation needs a running domain,
	// ErrRunning that it needs one that does not run.
	ErrNotRunning = errdefs.ErrFailedPrecondition.WithMessage("domain is not running")
	ErrRunning    = errdefs.ErrFailedPrecondition.WithMessage("domain is running")
	// ErrUnavailable means that libvirtd is away or did not answer in time. The
	// domain itself may be well. Whether the call had an effect is not known.
	ErrUnavailable = errdefs.ErrUnavailable.WithMessage("libvirtd is not available")
	// ErrUnsupported means that the node's libvirt or QEMU has no such CPU,
	// machine type or device.
	ErrUnsupported = errdefs.ErrInvalidArgument.WithMessage("this node can't run such a machine")
)

// failure is a failed call: its text names operation and object, errors.Is
// finds the kind.
type failure struct {
	op, object string
	kind       error // a sentinel or nil
	detail     error // libvirt's own words, a context's error or nil
}

func (f *failure) Error() string {
	text := f.op + " " + f.object
	if f.kind != nil && (f.detail == nil || !strings.Contains(f.detail.Error(), f.kind.Error())) {
		text += ": " + f.kind.Error()
	}
	if f.detail != nil {
		text += ": " + f.detail.Error()
	}
	return text
}

// Unwrap puts the detail first: the end of the caller's context says more about
// a call than that libvirtd did not answer in time.
func (f *failure) Unwrap() []error {
	var all []error
	for _, err := range []error{f.detail, f.kind} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// kindOf maps what libvirt answered, on a connection that is alive or not, to
// one of the sentinels, or nil where none fits.
func kindOf(err error, alive bool) error {
	var e libvirt.Error
	switch {
	case !alive:
		return ErrUnavailable
	case errors.Is(err, ErrRunning):
		return ErrRunning
	case errors.Is(err, ErrNotRunning):
		return ErrNotRunning
	case !errors.As(err, &e):
		return nil
	}
	if e.Domain == libvirt.FROM_CPU {
		return ErrUnsupported // of what code ever: an unknown model is an "internal error"
	}
	switch e.Code {
	case libvirt.ERR_CONFIG_UNSUPPORTED, libvirt.ERR_CPU_INCOMPATIBLE:
		return ErrUnsupported
	case libvirt.ERR_NO_DOMAIN:
		return ErrNotFound
	case libvirt.ERR_NO_CONNECT, libvirt.ERR_INVALID_CONN, libvirt.ERR_RPC:
		return ErrUnavailable
	default:
		return nil
	}
}

// named is an error of a call on a domain with its name, which people know.
type named struct {
	name string
	error
}

func (n named) Unwrap() error { return n.error }

// explain adds to an error of an operation on dom what libvirt leaves out: the
// domain's name, and where the operation doesn't fit the domain's state, which
// it was.
func explain(dom *libvirt.Domain, err error) error {
	if errors.Is(err, libvirt.ERR_OPERATION_INVALID) {
		switch active, askErr := dom.IsActive(); {
		case askErr != nil:
		case active:
			err = fmt.Errorf("%w (%w)", ErrRunning, err)
		default:
			err = fmt.Errorf("%w (%w)", ErrNotRunning, err)
		}
	}
	if name, nameErr := dom.GetName(); nameErr == nil {
		err = named{name, err}
	}
	return err
}

// plain is an error with libvirt's own words in place of the binding's dump of
// codes, without the class that libvirt puts before them.
func plain(err error) error {
	var e libvirt.Error
	if !errors.As(err, &e) {
		return err
	}
	words := e.Message
	for _, class := range []string{"internal error: ", "unsupported configuration: "} {
		words = strings.TrimPrefix(words, class)
	}
	return errors.New(strings.Replace(err.Error(), e.Error(), words, 1))
}

// expired is the error of a call whose context ended first. A deadline means
// that libvirtd hangs, a cancellation only that the caller lost interest.
func expired(ctx context.Context, op, object string) error {
	f := &failure{op: op, object: object, detail: context.Cause(ctx)}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		f.kind = ErrUnavailable
		f.detail = fmt.Errorf("no answer in time: %w", f.detail)
	}
	return f
}
