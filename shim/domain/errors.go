package domain

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/containerd/errdefs"
	"libvirt.org/go/libvirt"
)

// The errors of the methods of [Driver], for errors.Is.
var (
	// ErrNotFound means that libvirtd has no such domain. Its kind is not
	// errdefs.ErrNotFound, which would mean to a CRI client that the container does
	// not exist.
	ErrNotFound = errdefs.ErrFailedPrecondition.WithMessage("no such domain")
	// ErrNotRunning means that the operation needs a running domain,
	// ErrRunning that it needs one that does not run.
	ErrNotRunning = errdefs.ErrFailedPrecondition.WithMessage("domain is not running")
	ErrRunning    = errdefs.ErrFailedPrecondition.WithMessage("domain is running")
	// ErrPaused means that QEMU keeps a disk's file open until its guest runs.
	ErrPaused = errdefs.ErrFailedPrecondition.WithMessage("the guest is paused")
	// ErrNoPort means that devices have all of the domain's PCI ports.
	ErrNoPort = errdefs.ErrResourceExhausted.WithMessage("the VM has no free PCI port; use bus scsi, whose disks share one")
	// ErrNoCardPort is ErrNoPort for a network card.
	ErrNoCardPort = errdefs.ErrResourceExhausted.WithMessage("the VM has no free PCI port for a network card; " +
		"detach a card or a disk on bus virtio, or restart the VM")
	// ErrUnavailable means that libvirtd does not run or did not answer in time. The
	// domain may still run. Whether the call had an effect is unknown.
	ErrUnavailable = errdefs.ErrUnavailable.WithMessage("libvirtd is not available")
	// ErrUnanswered means that the caller's context ended before libvirtd answered, for whatever reason:
	// the caller's own, or the failure of another call beside this one. libvirtd may still do what it was
	// asked.
	ErrUnanswered = errors.New("libvirtd has not answered yet")
	// ErrUnsupported means that the node's libvirt or QEMU does not support the CPU,
	// the machine type or a device.
	ErrUnsupported = errdefs.ErrInvalidArgument.WithMessage("this node does not support the VM")
)

// failure is the error of a call. Its text names the operation and the object;
// it wraps the kind.
type failure struct {
	op, object string
	kind       error // a sentinel or nil
	detail     error // libvirt's error, a context's error or nil
	open       bool  // ErrUnanswered, which is not in the text
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

// Unwrap returns the detail first: if the caller's context ended, that decides the
// kind, and not ErrUnavailable.
func (f *failure) Unwrap() []error {
	var all []error
	for _, err := range []error{f.detail, f.kind} {
		if err != nil {
			all = append(all, err)
		}
	}
	if f.open {
		all = append(all, ErrUnanswered)
	}
	return all
}

// kindOf maps libvirt's error, on a connection that is alive or not, to one of the
// sentinels, or to nil if none fits.
func kindOf(err error, alive bool) error {
	var e libvirt.Error
	switch {
	case !alive:
		return ErrUnavailable
	case errors.Is(err, ErrRunning):
		return ErrRunning
	case errors.Is(err, ErrNotRunning):
		return ErrNotRunning
	case errors.Is(err, ErrPaused):
		return ErrPaused
	case errors.Is(err, ErrNoPort):
		return ErrNoPort
	case errors.Is(err, ErrNoCardPort):
		return ErrNoCardPort
	case !errors.As(err, &e):
		return nil
	}
	if e.Domain == libvirt.FROM_CPU {
		return ErrUnsupported // with any code: an unknown model is an "internal error"
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

// named is an error of a call on a domain, with the name of the domain.
type named struct {
	name string
	error
}

func (n named) Unwrap() error { return n.error }

// explain adds to an error of an operation on dom the domain's name and, if the
// operation is invalid in the domain's state, that state. libvirt leaves out both.
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

// plain returns an error with libvirt's message in place of the binding's dump of
// codes, without libvirt's class of the error at the beginning.
func plain(err error) error {
	var e libvirt.Error
	if !errors.As(err, &e) {
		return err
	}
	message := e.Message
	for _, class := range []string{"internal error: ", "unsupported configuration: "} {
		message = strings.TrimPrefix(message, class)
	}
	message = emulatorLink.ReplaceAllString(message, "$1")
	message = unknownFeature.ReplaceAllString(message, `spec.domain.cpu.features: this node's libvirt does not know the CPU feature "$1"`)
	return errors.New(strings.Replace(err.Error(), e.Error(), message, 1))
}

// emulatorLink finds the path by which libvirt starts QEMU, whose folder differs on each node.
var emulatorLink = regexp.MustCompile(`/[^' ]*/emulators/[0-9a-f]+/([a-z-]+)`)

// unknownFeature finds the name of a CPU feature that libvirt does not know.
var unknownFeature = regexp.MustCompile(`^unknown CPU feature: (\S+)$`)

// unanswered returns the error of a call that libvirtd got, and whose context has ended.
func unanswered(ctx context.Context, op, object string) *failure {
	f := expired(ctx, op, object)
	f.open = true
	return f
}

// expired returns the error of a call whose context has ended. A deadline means
// that libvirtd hangs; a cancellation does not.
func expired(ctx context.Context, op, object string) *failure {
	f := &failure{op: op, object: object, detail: context.Cause(ctx)}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		f.kind = ErrUnavailable
		f.detail = fmt.Errorf("no answer in time: %w", f.detail)
	}
	return f
}
