package netsetup

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"sigs.k8s.io/knftables"
)

// ErrNoAddress means that a pod's interface has no address for the guest.
var ErrNoAddress = errdefs.ErrFailedPrecondition.WithMessage("pod has no address")

// ErrUnsuited means that a pod's network can't provide what the VM needs.
var ErrUnsuited = errdefs.ErrFailedPrecondition.WithMessage("the pod's network does not suit the VM")

// ErrInUse means that another VM has the pod's interface.
var ErrInUse = errdefs.ErrFailedPrecondition.WithMessage("pod's interface belongs to another VM")

// ErrPortTaken means that another process in the pod has the port of the DHCP server.
var ErrPortTaken = errdefs.ErrFailedPrecondition.WithMessage("another process in the pod listens on UDP port 67, where " +
	"the guest's DHCP server must listen: stop that process")

// undoTimeout is how long the undo of a failed Apply may take.
const undoTimeout = 20 * time.Second

// Options are the settings of a Setup. The program nft must be in PATH.
type Options struct {
	// Dnsmasq is the program's path.
	Dnsmasq string
	// Dir is the folder that holds a folder DIR/ID for each VM, with its Plan, and dnsmasq's config and pid file.
	Dir string
	// PodNetworkMAC lets bridged guests have other MAC addresses on the pod network than
	// the pod's interface, see [MACError].
	PodNetworkMAC bool
	// Logger may be nil.
	Logger *slog.Logger
}

// Setup creates and removes the networks of VMs. Its methods may run at the
// same time for different pods. They must run as root, in libvirtd's network namespace.
type Setup struct {
	dnsmasq string
	dir     string
	anyMAC  bool
	log     *slog.Logger

	mu  sync.Mutex
	nft knftables.Interface // see nftables
}

// New returns a Setup. It changes nothing on the node.
func New(o Options) *Setup {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Setup{dnsmasq: o.Dnsmasq, dir: o.Dir, anyMAC: o.PodNetworkMAC, log: log}
}

// step is one step of Apply. Both functions may be called again at any point,
// after they returned or after a crash in between.
type step struct {
	name     string
	do, undo func(context.Context, Plan) error
}

func (s *Setup) steps() []step {
	return []step{
		{"silence", s.silence, stays},
		{"hold", s.hold, s.Own},
		{"bridge", eachWired(addBridge), eachWiredBack(removeBridge)}, // marks the owner: done before, undone after all that follows
		{"filter", s.addFilter, s.removeFilter},
		{"sysctls", setSysctls, restoreSysctls},
		{"interface", eachWired(takeInterface), eachWiredBack(restoreInterface)},
		{"tap", each(addTap), eachBack(removeTap)},
	}
}

// stays undoes nothing.
func stays(context.Context, Plan) error { return nil }

// each returns a function that calls do for each card in order and stops at an error.
func each(do func(Plan, NIC) error) func(context.Context, Plan) error {
	return func(ctx context.Context, p Plan) error { return inTurn(ctx, p, slices.Values(p.NICs), do) }
}

// eachBack is each in reverse order.
func eachBack(undo func(Plan, NIC) error) func(context.Context, Plan) error {
	return func(ctx context.Context, p Plan) error { return inTurn(ctx, p, backward(p.NICs), undo) }
}

// eachWired is each for the cards with a bridge, and eachWiredBack the same in reverse order.
func eachWired(do func(Plan, NIC) error) func(context.Context, Plan) error {
	return func(ctx context.Context, p Plan) error { return inTurn(ctx, p, slices.Values(p.wired()), do) }
}

func eachWiredBack(undo func(Plan, NIC) error) func(context.Context, Plan) error {
	return func(ctx context.Context, p Plan) error { return inTurn(ctx, p, backward(p.wired()), undo) }
}

// wired returns the cards with a bridge.
func (p Plan) wired() []NIC {
	return slices.DeleteFunc(slices.Clone(p.NICs), NIC.plugged)
}

func backward(nics []NIC) iter.Seq[NIC] {
	return func(yield func(NIC) bool) {
		for _, n := range slices.Backward(nics) {
			if !yield(n) {
				return
			}
		}
	}
}

func inTurn(ctx context.Context, p Plan, nics iter.Seq[NIC], do func(Plan, NIC) error) error {
	for n := range nics {
		if err := errors.Join(ctx.Err(), do(p, n)); err != nil {
			return err
		}
	}
	return nil
}

// Apply creates what p describes, up to a tap that QEMU can open in the caller's network
// namespace. It may be repeated. If it fails, it undoes its changes.
func (s *Setup) Apply(ctx context.Context, p Plan) (err error) {
	if err := p.check(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
			defer cancel()
			err = errors.Join(err, s.Undo(ctx, p))
		}
	}()
	if err := s.keep(p); err != nil {
		return err
	}
	for _, step := range s.steps() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step.do(ctx, p); err != nil {
			return fmt.Errorf("set up %s of pod network %s: %w", step.name, p.Netns, err)
		}
	}
	for _, n := range p.NICs {
		s.log.DebugContext(ctx, "pod network set up", "netns", p.Netns, "interface", n.Interface,
			"tap", n.Tap, "address", n.IPv4.Address, "mac", n.GuestMAC)
	}
	return nil
}

// Undo ends dnsmasq, removes what p describes and restores the addresses and routes of the pod's
// interface. It succeeds from every intermediate state, when there is nothing left to do, and
// when the namespace is gone. After an error it may be repeated.
func (s *Setup) Undo(ctx context.Context, p Plan) error {
	if err := p.check(); err != nil {
		return err
	}
	if err := errors.Join(s.stop(ctx, p), s.undoSteps(ctx, p)); err != nil {
		return err
	}
	return s.forget(p)
}

// undoSteps undoes the steps in reverse order and stops at an error: the bridge, which marks the
// owner, must stay until the rest of the pod is restored.
func (s *Setup) undoSteps(ctx context.Context, p Plan) error {
	for _, step := range slices.Backward(s.steps()) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step.undo(ctx, p); err != nil {
			return fmt.Errorf("undo %s of pod network %s: %w", step.name, p.Netns, err)
		}
	}
	return nil
}
