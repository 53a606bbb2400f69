package handover

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// ErrUnsettled is returned by a source that handed its guest over and has no answer.
// The guest is paused here. The caller asks again, with [Source.Recover], or decides.
var ErrUnsettled = errors.New("the guest is handed over, and the target has not answered")

// sourceVM is the VM on the source, at its libvirt.
type sourceVM interface {
	// Begin starts libvirt's migration job to the target's domain.
	Begin(ctx context.Context, xml string) (cookie []byte, err error)
	// Perform copies the guest. The guest is stopped when Perform returns without an
	// error. After an error it may run, be stopped, or stop later: Keep ends this.
	Perform(ctx context.Context, cookie []byte) ([]byte, error)
	// Release lets the target lock what one node at a time may use. The guest is stopped. Keep locks it
	// again.
	Release(ctx context.Context) error
	// Keep ends libvirt's job, if any, and resumes the guest if the job stopped it. A
	// guest that ended meanwhile is no error.
	Keep(ctx context.Context) error
	// Leave ends libvirt's job and QEMU, without an effect on disks. cookie is nil if
	// the target's answer is lost. A domain that does not run is no error.
	Leave(ctx context.Context, cookie []byte) error
	// Running reports whether the guest runs, which excludes a paused one.
	Running(ctx context.Context) (bool, error)
}

// Answer is the target's decision.
type Answer struct {
	// State is [Taken] or [Refused].
	State  State
	Reason string

	cookie []byte
}

// Source moves a VM away from this node.
type Source struct {
	ledger
	vm      sourceVM
	limits  Limits
	observe func(Step)

	turn      turn          // held by Run, Recover and Decide
	interrupt chan struct{} // ends a question to the target
}

// NewSource returns the source of a migration. rec is the record that was read, or a
// new one of [NewSending]. observe is called at each step, and may block.
func NewSource(rec Record, vm sourceVM, to records, l Limits, observe func(Step)) *Source {
	return &Source{
		ledger: ledger{records: to, rec: rec}, vm: vm, limits: l, observe: observe, turn: newTurn(), interrupt: make(chan struct{}),
	}
}

// NewSending returns the record of a source that begins.
func NewSending(migration, vm string) Record {
	return Record{Version: version, Migration: migration, VM: vm, State: Sending}
}

// Run moves the VM. dial opens a connection for messages to the target, and is called
// again to ask for a lost answer, until ctx ends. The shape is for the target.
//
// Without an error the guest left. Otherwise [Source.Record] has the outcome: kept, or
// handed-over with [ErrUnsettled].
func (s *Source) Run(ctx context.Context, dial func(context.Context) (net.Conn, error), shape []byte) error {
	if err := s.turn.take(ctx); err != nil {
		return err
	}
	defer s.turn.end()
	if err := s.put(Sending, ""); err != nil {
		return err
	}
	cookie, conn, err := s.copy(ctx, dial, shape)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause // the rest follows from it
	}
	if err == nil {
		s.observe(StepPerformed)
		err = s.handOver(ctx)
	}
	if err != nil {
		closeIf(conn)
		return errors.Join(err, s.decide(ctx, Answer{State: Refused, Reason: err.Error()}))
	}
	answer, err := s.handOverTo(ctx, conn, cookie)
	closeIf(conn)
	if err != nil {
		s.observe(StepUnanswered)
		return s.settle(ctx, dial)
	}
	return s.obey(ctx, answer)
}

// handOverTo sends the hand-over. The answer is on its way, so that a cancelled migration waits for it.
func (s *Source) handOverTo(ctx context.Context, conn net.Conn, cookie []byte) (Answer, error) {
	ctx, cancel := s.interruptible(context.WithoutCancel(ctx))
	defer cancel()
	return s.ask(ctx, conn, s.message(kindHandOver, message{Cookie: cookie}))
}

// handOver writes handed-over, and releases what the target needs. A guest that runs after Perform was resumed from
// outside: it has a future that the target does not know.
func (s *Source) handOver(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, s.limits.Local)
	defer cancel()
	var group errgroup.Group // the guest waits for both
	group.Go(func() error {
		running, err := s.vm.Running(within)
		if err == nil && running {
			err = errors.New("the guest was resumed during its hand-over")
		}
		return err
	})
	group.Go(func() error { return s.put(HandedOver, "") })
	if err := group.Wait(); err != nil {
		return err
	}
	s.observe(StepHandedOver)
	return s.vm.Release(within)
}

// copy lets the target prepare and libvirt copy the guest. The connection is not nil
// if it was opened, also with an error.
func (s *Source) copy(ctx context.Context, dial func(context.Context) (net.Conn, error), shape []byte) (cookie []byte, conn net.Conn, err error) {
	if conn, err = s.open(ctx, dial); err != nil {
		return nil, nil, err
	}
	s.observe(StepConnected)
	// A context that ends also ends a wait for the target.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defined, err := s.call(conn, kindDefine, message{Shape: shape})
	if err != nil {
		return nil, conn, err
	}
	if err := checkXML(defined.XML, s.Record().VM); err != nil {
		return nil, conn, err
	}
	s.observe(StepDefined)
	within, cancel := context.WithTimeout(ctx, s.limits.Local)
	defer cancel()
	if cookie, err = s.vm.Begin(within, defined.XML); err != nil {
		return nil, conn, err
	}
	s.observe(StepBegun)
	prepared, err := s.call(conn, kindPrepare, message{Cookie: cookie})
	if err != nil {
		return nil, conn, err
	}
	s.observe(StepPrepared)
	cookie, err = s.perform(ctx, conn, prepared.Cookie)
	return cookie, conn, err
}

// perform copies the guest and reports to the target that it does. If the target does
// not answer, it ends the copy.
func (s *Source) perform(ctx context.Context, conn net.Conn, cookie []byte) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	copied, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-copied:
				return
			case <-time.After(s.limits.Alive):
			}
			if _, err := s.call(conn, kindAlive, message{}); err != nil {
				cancel(fmt.Errorf("the target does not answer: %w", err))
				return
			}
		}
	}()
	cookie, err := s.vm.Perform(ctx, cookie)
	close(copied)
	<-ended // the connection is free again
	if cause := context.Cause(ctx); cause != nil {
		err = cause // also that the target does not answer
	}
	cancel(nil)
	return cookie, err
}

func (s *Source) open(ctx context.Context, dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
	within, cancel := context.WithTimeout(ctx, s.limits.Answer)
	defer cancel()
	conn, err := dial(within)
	if err != nil {
		return nil, fmt.Errorf("connect to the target: %w; a network policy may block it", err)
	}
	return conn, nil
}

// call sends a request that the target answers with done.
func (s *Source) call(conn net.Conn, k kind, m message) (message, error) {
	answer, err := exchange(conn, s.message(k, m), s.limits.Answer)
	switch {
	case err != nil:
		return message{}, fmt.Errorf("%s: %w", k, err)
	case answer.Kind == kindRefused:
		return message{}, fmt.Errorf("the target refuses: %s", answer.Reason)
	case answer.Kind != kindDone:
		return message{}, fmt.Errorf("%w: %q is no answer to %s", errProtocol, answer.Kind, k)
	}
	return answer, nil
}

func (s *Source) message(k kind, m message) message {
	m.Kind = k
	return s.Record().about(m)
}

// exchange sends a request and returns the answer.
func exchange(conn net.Conn, m message, within time.Duration) (message, error) {
	w := wire{conn}
	if err := w.send(m, within); err != nil {
		return message{}, err
	}
	answer, err := w.receive(within)
	if err != nil {
		return message{}, err
	}
	about := Record{Version: m.Version, Migration: m.Migration, VM: m.VM}
	return answer, about.matches(answer)
}

// ask sends a request that the target answers with its decision.
func ask(conn net.Conn, m message, within time.Duration) (Answer, error) {
	answer, err := exchange(conn, m, within)
	if err != nil {
		return Answer{}, err
	}
	switch answer.Kind {
	case kindTaken:
		return Answer{State: Taken, cookie: answer.Cookie}, nil
	case kindRefused:
		return Answer{State: Refused, Reason: answer.Reason}, nil
	default:
		return Answer{}, fmt.Errorf("%w: %q is no decision", errProtocol, answer.Kind)
	}
}

// checkXML checks that the target's domain has the VM's UUID. libvirt compares the rest.
func checkXML(text, vm string) error {
	var d struct {
		XMLName xml.Name `xml:"domain"`
		UUID    string   `xml:"uuid"`
	}
	if err := xml.NewDecoder(strings.NewReader(text)).Decode(&d); err != nil {
		return fmt.Errorf("%w: the target's domain: %w", errProtocol, err)
	}
	if d.UUID != vm {
		return fmt.Errorf("%w: the target's domain has another VM's UUID", errProtocol)
	}
	return nil
}

func closeIf(c net.Conn) {
	if c != nil {
		c.Close()
	}
}
