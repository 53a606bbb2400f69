package handover

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// ErrLost is returned by a target that took a guest which does not run any more. The
// guest ended here, as one that never moved can end.
var ErrLost = errors.New("the guest ended after its hand-over")

// targetVM is the VM on the target, at its libvirt.
type targetVM interface {
	// Define defines the domain, with the source's shape, and returns its XML.
	Define(ctx context.Context, shape []byte) (xml string, err error)
	// Prepare starts QEMU, which waits for the guest. QEMU ends with the shim.
	Prepare(ctx context.Context, cookie []byte) ([]byte, error)
	// Finish ends libvirt's migration. The guest is complete, and paused.
	Finish(ctx context.Context, cookie []byte) ([]byte, error)
	// Resume runs a guest that Finish completed. It returns [ErrLost] if QEMU does not
	// run. A guest that runs is no error.
	Resume(ctx context.Context) error
	// Discard ends QEMU and removes the definition, after any of the above, in progress
	// or not. It has no effect on disks that the source has, too.
	Discard(ctx context.Context) error
}

// progress is how far a target has prepared, which its record need not say.
type progress int

const (
	fresh progress = iota
	defined
	prepared
)

// Target receives a VM on this node.
type Target struct {
	ledger
	vm      targetVM
	limits  Limits
	observe func(Step)

	turn     turn // held for each step, so that one decision is made
	progress progress
	cookie   []byte // Finish's, for the source's libvirt
}

// NewTarget returns the target of a migration. rec is the record that was read, or one
// of [NewIncoming], which the caller has written before.
func NewTarget(rec Record, vm targetVM, to records, l Limits, observe func(Step)) *Target {
	return &Target{ledger: ledger{records: to, rec: rec}, vm: vm, limits: l, observe: observe, turn: newTurn()}
}

// NewIncoming returns the record of a target that waits for a source.
func NewIncoming(migration, vm string) Record {
	return Record{Version: version, Migration: migration, VM: vm, State: Incoming}
}

// Serve answers the source's messages on a connection, until the source closes it, is
// silent for too long, or has its decision. A connection on which the source has begun
// the migration, and that ends without a hand-over, is refused. The caller closes conn.
func (t *Target) Serve(ctx context.Context, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	w := wire{conn}
	for {
		m, err := w.receive(t.limits.Silence)
		if err != nil {
			return t.Refuse(ctx, fmt.Sprintf("the source's connection ended: %v", err))
		}
		if m.Kind == kindHandOver {
			t.observe(StepReceived)
		}
		answer := t.Record().about(t.handle(ctx, m))
		sent := w.send(answer, t.limits.Answer)
		switch {
		case answer.Kind == kindDone && sent == nil:
			continue
		case answer.Kind == kindDone:
			return t.Refuse(ctx, fmt.Sprintf("the source's connection ended: %v", sent))
		case answer.Kind == "":
			return fmt.Errorf("migration %s: no decision: %s", m.Migration, answer.Reason)
		default:
			return errors.Join(sent, t.Recover(ctx))
		}
	}
}

// handle carries out a request. An answer without a kind is no decision.
func (t *Target) handle(ctx context.Context, m message) message {
	// What has begun must end, even if the connection does.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.limits.Local)
	defer cancel()
	if err := t.turn.take(ctx); err != nil {
		return message{Reason: err.Error()}
	}
	defer t.turn.end()
	if err := t.Record().matches(m); err != nil {
		return t.refused(err)
	}
	if t.Record().State != Incoming {
		return t.decision()
	}
	answer, err := t.step(ctx, m)
	if err != nil {
		return t.refused(err)
	}
	return answer
}

func (t *Target) step(ctx context.Context, m message) (message, error) {
	switch {
	case m.Kind == kindDefine && t.progress == fresh:
		t.observe(StepDefining)
		text, err := t.vm.Define(ctx, m.Shape)
		t.progress = defined
		return message{Kind: kindDone, XML: text}, err
	case m.Kind == kindPrepare && t.progress == defined:
		t.observe(StepPreparing)
		cookie, err := t.vm.Prepare(ctx, m.Cookie)
		t.progress = prepared
		if err == nil {
			t.observe(StepReady)
		}
		return message{Kind: kindDone, Cookie: cookie}, err
	case m.Kind == kindAlive && t.progress == prepared:
		return message{Kind: kindDone}, nil
	case m.Kind == kindHandOver && t.progress == prepared:
		return t.take(ctx, m.Cookie)
	case m.Kind == kindOutcome:
		return message{}, errors.New("the source asks for the outcome before the target has the guest")
	default:
		return message{}, fmt.Errorf("%w: %q at the wrong time", errProtocol, m.Kind)
	}
}
