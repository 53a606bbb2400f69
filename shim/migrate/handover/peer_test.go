package handover

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func about(m message) message { return NewIncoming(testMigration, testVM).about(m) }

// receiver starts a target, and returns the source's end of a connection to it, and what
// Serve returns.
func receiver(t *testing.T, w *world) (*Target, net.Conn, chan error) {
	t.Helper()
	p := w.target.boot(t.Context())
	target := NewTarget(NewIncoming(testMigration, testVM), fakeTarget{p}, p, DefaultLimits(), func(Step) {})
	here, there := net.Pipe()
	served := make(chan error, 1)
	go func() {
		defer there.Close()
		served <- target.Serve(t.Context(), there)
	}()
	t.Cleanup(func() { here.Close() })
	return target, here, served
}

// TestHostileSource sends a target what no source sends: it refuses, durably, and
// nothing is left.
func TestHostileSource(t *testing.T) {
	oversized := binary.BigEndian.AppendUint32(nil, 1<<31)
	frame := func(text string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	}
	for name, tt := range map[string]struct {
		first []message
		raw   []byte
		send  message
	}{
		"another VM":           {send: Record{Version: 1, Migration: testMigration, VM: "other"}.about(message{Kind: kindDefine})},
		"another migration":    {send: Record{Version: 1, Migration: "other", VM: testVM}.about(message{Kind: kindDefine})},
		"another version":      {send: Record{Version: 9, Migration: testMigration, VM: testVM}.about(message{Kind: kindDefine})},
		"hand-over at once":    {send: about(message{Kind: kindHandOver})},
		"prepare at once":      {send: about(message{Kind: kindPrepare})},
		"alive at once":        {send: about(message{Kind: kindAlive})},
		"outcome at once":      {send: about(message{Kind: kindOutcome})},
		"unknown":              {send: about(message{Kind: "run"})},
		"an answer":            {send: about(message{Kind: kindTaken})},
		"define twice":         {first: []message{{Kind: kindDefine}}, send: about(message{Kind: kindDefine})},
		"prepare twice":        {first: []message{{Kind: kindDefine}, {Kind: kindPrepare}}, send: about(message{Kind: kindPrepare})},
		"without a connection": {first: []message{{Kind: kindDefine}, {Kind: kindPrepare}}},
		"a long message":       {raw: oversized},
		"half a message":       {raw: frame(`{"kind":"define"}`)[:9]},
		"no JSON":              {raw: frame("\x00\xff")},
		"another type":         {raw: frame(`{"kind":[]}`)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				target, conn, served := receiver(t, w)
				for _, m := range tt.first {
					if answer, err := exchange(conn, about(m), time.Second); err != nil || answer.Kind != kindDone {
						t.Fatalf("%s: %+v, %v", m.Kind, answer, err)
					}
				}
				if tt.send.Kind != "" {
					if a, err := ask(conn, tt.send, time.Second); err == nil && a.State != Refused {
						t.Errorf("answered %+v", a)
					}
				} else {
					_, _ = conn.Write(tt.raw)
					conn.Close()
				}
				if err := <-served; err != nil && !strings.Contains(err.Error(), "pipe") {
					t.Error(err)
				}
				if r := target.Record(); r.State != Refused || !r.Ended || w.target.disk.State != Refused || r.Reason == "" {
					t.Errorf("record: %+v", r)
				}
				if w.target.qemu != absent {
					t.Errorf("QEMU is %s", w.target.qemu)
				}
			})
		})
	}
}

// TestSilentSource checks that a target does not wait for ever.
func TestSilentSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target, conn, served := receiver(t, newWorld())
		if _, err := conn.Write([]byte{0, 0}); err != nil {
			t.Fatal(err)
		}
		if err := <-served; err != nil || target.Record().State != Refused {
			t.Errorf("%v, %+v", err, target.Record())
		}
	})
}

// TestHostileTarget answers a source with what no target answers: the source keeps its
// guest, or leaves it paused if it had handed it over.
func TestHostileTarget(t *testing.T) {
	good := map[kind]message{
		kindDefine: {Kind: kindDone, XML: testXML}, kindPrepare: {Kind: kindDone}, kindAlive: {Kind: kindDone},
		kindHandOver: {Kind: kindTaken},
	}
	for name, tt := range map[string]struct {
		to     kind
		answer message
	}{
		"no XML":             {kindDefine, message{Kind: kindDone}},
		"another VM's XML":   {kindDefine, message{Kind: kindDone, XML: "<domain><uuid>other</uuid></domain>"}},
		"half an XML":        {kindDefine, message{Kind: kindDone, XML: "<domain><uuid>" + testVM}},
		"taken at once":      {kindDefine, message{Kind: kindTaken}},
		"taken early":        {kindPrepare, message{Kind: kindTaken}},
		"taken while copied": {kindAlive, message{Kind: kindTaken}},
		"no decision":        {kindHandOver, message{Kind: kindDone}},
		"an unknown answer":  {kindHandOver, message{Kind: "kept"}},
		"another's decision": {kindHandOver, message{Kind: kindRefused, VM: "other"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				p := w.source.boot(t.Context())
				w.target.boot(t.Context())
				w.target.qemu = waiting
				dials := 0
				dial := func(context.Context) (net.Conn, error) {
					if dials++; dials > 1 {
						return nil, errors.New("connection refused")
					}
					here, there := net.Pipe()
					go func() {
						defer there.Close()
						for {
							m, err := wire{there}.receive(time.Hour)
							if err != nil {
								return
							}
							answer := good[m.Kind]
							if m.Kind == tt.to {
								answer = tt.answer
							}
							vm := answer.VM
							if answer = about(answer); vm != "" {
								answer.VM = vm
							}
							_ = wire{there}.send(answer, time.Minute)
						}
					}()
					return here, nil
				}
				source := NewSource(NewSending(testMigration, testVM), slowSource{fakeSource{p}}, p, DefaultLimits(), func(Step) {})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := source.Run(ctx, dial, nil)
				rec := source.Record()
				if tt.to != kindHandOver {
					if err == nil || rec.State != Kept || !rec.Ended || w.source.qemu != running {
						t.Errorf("%v, %+v, QEMU is %s", err, rec, w.source.qemu)
					}
					return
				}
				if !errors.Is(err, ErrUnsettled) || rec.State != HandedOver || rec.MayResume() || w.source.qemu != paused {
					t.Errorf("%v, %+v, QEMU is %s", err, rec, w.source.qemu)
				}
			})
		})
	}
}

// slowSource copies for longer than the source is silent.
type slowSource struct{ fakeSource }

func (v slowSource) Perform(ctx context.Context, cookie []byte) ([]byte, error) {
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(12 * time.Second):
	}
	return v.fakeSource.Perform(ctx, cookie)
}

// TestSplit has a link that stays away after the hand-over: no node runs the guest until
// an administrator's decision, and a later one has no effect.
func TestSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.fault = func(_ *process, at string) {
			if at == string(StepReceived) {
				w.link.fail(true)
				w.target.process.kill()
			}
		}
		p, all := w.boot(t.Context())
		source := all.source(p, NewSending(testMigration, testVM))
		if err := source.Decide(t.Context(), Answer{State: Refused}); err == nil {
			t.Error("a source decides before it has handed over")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if err := source.Run(ctx, w.dial(p, all.serve), nil); !errors.Is(err, ErrUnsettled) {
			t.Fatal(err)
		}
		if w.source.qemu != paused || source.Record().MayResume() {
			t.Errorf("the source's guest is %s", w.source.qemu)
		}
		if err := source.Decide(t.Context(), Answer{State: Kept}); err == nil {
			t.Error("kept is accepted as an answer")
		}
		if err := source.Decide(t.Context(), Answer{State: Refused, Reason: "node deleted"}); err != nil {
			t.Error(err)
		}
		if err := source.Decide(t.Context(), Answer{State: Taken}); err == nil {
			t.Error("a second decision is accepted")
		}
		if r := source.Record(); w.source.qemu != running || r.State != Kept || r.Reason != "node deleted" || !r.Ended || !r.MayResume() {
			t.Errorf("%+v, guest is %s", r, w.source.qemu)
		}
	})
}

// TestDecideMeanwhile has a decision while the source still asks: of a target that is silent, and of one that
// cannot be reached. The source takes it at once.
func TestDecideMeanwhile(t *testing.T) {
	for name, dead := range map[string]bool{"silent": false, "unreachable": true} {
		for _, decision := range []State{Taken, Refused} {
			t.Run(name+" "+string(decision), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld()
					hang := make(chan struct{})
					defer close(hang)
					w.fault = func(_ *process, at string) {
						switch {
						case at != "target before Finish":
						case dead:
							w.link.fail(true)
							w.target.process.kill()
						default:
							<-hang
						}
					}
					p, all := w.boot(t.Context())
					source := all.source(p, NewSending(testMigration, testVM))
					var ran sync.WaitGroup
					var result error
					ran.Go(func() { result = source.Run(t.Context(), w.dial(p, all.serve), nil) })
					time.Sleep(time.Second / 2)
					begun := time.Now()
					within, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					if err := source.Decide(within, Answer{State: decision, Reason: "said the kubelet"}); err != nil {
						t.Fatal(err)
					}
					ran.Wait()
					if took := time.Since(begun); took > 2*DefaultLimits().Ask {
						t.Errorf("it took %s", took)
					}
					want, guest := Left, absent
					if decision == Refused {
						want, guest = Kept, running
					}
					if r := source.Record(); r.State != want || !r.Ended || w.source.qemu != guest || (result == nil) != (want == Left) {
						t.Errorf("%+v, guest is %s, and Run returns: %v", r, w.source.qemu, result)
					}
				})
			})
		}
	}
}

// TestCancel cancels a migration while memory is copied.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		p, all := w.boot(t.Context())
		source := NewSource(NewSending(testMigration, testVM), slowSource{fakeSource{p}}, p, DefaultLimits(), func(Step) {})
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("cancelled by the user")
		time.AfterFunc(7*time.Second, func() { cancel(why) })
		if err := source.Run(ctx, w.dial(p, all.serve), nil); !errors.Is(err, why) {
			t.Error(err)
		}
		synctest.Wait()
		if w.source.qemu != running || w.target.qemu != absent || w.target.disk.State != Refused || !w.target.disk.Ended {
			t.Errorf("source %s, target %s %+v", w.source.qemu, w.target.qemu, w.target.disk)
		}
	})
}

func FuzzReadMessage(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, '{', '}'})
	f.Add(binary.BigEndian.AppendUint32(nil, maxMessage))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := readMessage(strings.NewReader(string(data)))
		if err == nil && len(m.Cookie)+len(m.Shape)+len(m.XML) > len(data) {
			t.Error("a message is longer than its bytes")
		}
		if err != nil && m.Kind != "" {
			t.Error("an error with a message")
		}
		_, _ = io.Discard.Write(m.Cookie)
	})
}
