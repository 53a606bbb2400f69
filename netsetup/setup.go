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

// ErrNoAddress says that a pod's interface has no address to give to a guest.
var ErrNoAddress = errdefs.ErrFailedPrecondition.WithMessage("pod has no address")

// ErrUnsuited says that a pod's network and what a machine wants of it don't go together.
var ErrUnsuited = errdefs.ErrFailedPrecondition.WithMessage("the pod's network does not suit the machine")

// ErrInUse says that another virtual machine has the pod's interface already.
var ErrInUse = errdefs.ErrFailedPrecondition.WithMessage("pod's interface belongs to another virtual machine")

// ErrPortTaken says that a process in the pod has the port that guests ask for their address.
var ErrPortTaken = errdefs.ErrFailedPrecondition.WithMessage("another process in the pod listens on UDP port 67, where " +
	"guests ask for their address: keep it from that")

// undoTimeout bounds the undoing of an Apply that failed.
const undoTimeout = 20 * time.Second

// Options are what a Setup needs of its surroundings. The program nft is found in PATH.
type Options struct {
	// Dnsmasq is the program's path.
	Dnsmasq string
	// Dir is the folder that holds DIR/ID/ for each machine: dnsmasq's config and pid file.
	Dir string
	// Logger may be nil.
	Logger *slog.Logger
}

// Setup makes and removes the networks of virtual machines. Its methods may run at the
// same time for different pods. They must run as root, in libvirtd's network namespace.
type Setup struct {
	dnsmasq string
	dir     string
	log     *slog.Logger

	mu  sync.Mutex
	nft knftables.Interface // see nftables
}

// New returns a Setup. It touches nothing.
func New(o Options) *Setup {
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Setup{dnsmasq: o.Dnsmasq, dir: o.Dir, log: log}
}

// step is one thing that Apply makes. Both functions may be called again at any point,
// after themselves or after a crash in their middle.
type step struct {
	name     string
	do, undo func(context.Context, Plan) error
}

func (s *Setup) steps() []step {
	return []step{
		{"bridge", each(addBridge), eachBack(removeBridge)}, // the marker of ownership: first and last
		{"filter", s.addFilter, s.removeFilter},
		{"sysctls", setSysctls, restoreSysctls},
		{"interface", each(takeInterface), eachBack(restoreInterface)},
		{"tap", each(addTap), eachBack(removeTap)},
	}
}

// each does something for one card after the other, and stops where it fails.
func each(do func(Plan, NIC) error) func(context.Context, Plan) error {
	return func(ctx context.Context, p Plan) error { return inTurn(ctx, p, slices.Values(p.NICs), do) }
}

// eachBack is each, the last card first.
func eachBack(undo func(Plan, NIC) error) func(context.Context, Plan) error {
	return func(ctx context.Context, p Plan) error {
		return inTurn(ctx, p, func(yield func(NIC) bool) {
			for _, n := range slices.Backward(p.NICs) {
				if !yield(n) {
					return
				}
			}
		}, undo)
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

// Apply makes what p describes, up to a tap that QEMU can open in the caller's network
// namespace. It may be repeated, and undoes itself when it fails.
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
	for _, step := range s.steps() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step.do(ctx, p); err != nil {
			return fmt.Errorf("set up %s of pod network %s: %w", step.name, p.Netns, err)
		}
	}
	for _, n := range p.NICs {
		s.log.DebugContext(ctx, "pod network handed over", "netns", p.Netns, "interface", n.Interface,
			"tap", n.Tap, "address", n.IPv4.Address, "mac", n.GuestMAC)
	}
	return nil
}

// Undo ends dnsmasq, removes what p describes and gives the pod's interface back its
// addresses and routes. It succeeds from every half-made state, when there is
// nothing left to do, and when the namespace is gone. After an error it may be repeated.
func (s *Setup) Undo(ctx context.Context, p Plan) error {
	if err := p.check(); err != nil {
		return err
	}
	return errors.Join(s.stop(ctx, p), s.undoSteps(ctx, p))
}

// undoSteps goes backwards and stops where a step fails: as long as something of
// the pod is left to restore, the bridge that marks it must stay.
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
