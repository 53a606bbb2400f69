package criwalk

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"gotest.tools/v3/assert"
)

// answer is what a call was answered: its code and message, or the shape of its reply.
type answer struct {
	code  string
	lines []string
}

func (a answer) equal(b answer) bool { return a.code == b.code && slices.Equal(a.lines, b.lines) }

// walk is the comparison of two subjects on their way through their states.
type walk struct {
	t                *testing.T
	methods          map[string]protoreflect.MethodDescriptor
	cases            map[string]rpc
	machine, process *subject
	said             protocol
}

func newWalk(t *testing.T, cases map[string]rpc, machine, process *subject) *walk {
	t.Helper()
	return &walk{t: t, methods: methods(t), cases: cases, machine: machine, process: process}
}

func (w *walk) ask(s *subject, method string, request proto.Message) answer {
	w.t.Helper()
	reply, err := call(w.t.Context(), w.methods[method], request)
	if err == nil {
		return answer{"OK", shape(reply, s.mask)}
	}
	e := status.Convert(err)
	if s.image == suite.machine && strings.Contains(e.Message(), "rpc error: code") { // the client repeats it
		w.t.Errorf("%s of %s: gRPC's words in the message %q", method, s.name, e.Message())
	}
	return answer{e.Code().String(), []string{s.mask(e.Message())}}
}

// look asks all that does not move the subjects on.
func (w *walk) look(at state) {
	w.t.Helper()
	for _, method := range slices.Sorted(maps.Keys(w.cases)) {
		c := w.cases[method]
		if slices.Contains(c.moves, at) {
			continue
		}
		forMachine, forProcess := c.ask(w.machine, w.machine.subjectID()), c.ask(w.process, w.process.subjectID())
		for _, v := range slices.Sorted(maps.Keys(forMachine)) {
			name := strings.TrimSpace(fmt.Sprintf("%s: %s %s", at, method, v))
			m := w.again(name, w.machine, method, v, forMachine[v])
			p := w.again(name, w.process, method, v, forProcess[v])
			switch differs := slices.Contains(c.differs, at); {
			case m.code != p.code && !differs:
				w.t.Errorf("%s: a VM is answered\n%v\nan ordinary container\n%v", name, m, p)
			case m.code == p.code && differs:
				w.t.Errorf("%s: a VM is answered %s as an ordinary container; the case wants another code: %s", name, m.code, c.because)
			}
			w.said.note(name, m, p)
		}
	}
}

// again asks twice by the whole id and once by a short one: the answers must be the same.
func (w *walk) again(name string, s *subject, method, variant string, request proto.Message) answer {
	w.t.Helper()
	first := w.ask(s, method, request)
	second := w.ask(s, method, request)
	if !first.equal(second) {
		w.t.Errorf("%s of %s: first %v, then %v", name, s.name, first, second)
	}
	whole := s.subjectID()
	if len(whole) != wholeID {
		return first
	}
	short := w.ask(s, method, w.cases[method].ask(s, whole[:shortID])[variant])
	for i := range short.lines {
		short.lines[i] = strings.ReplaceAll(short.lines[i], whole[:shortID], s.mask(whole))
	}
	if !first.equal(short) {
		w.t.Errorf("%s of %s: by its id %v, by a short one %v", name, s.name, first, short)
	}
	return first
}

// both does one step of the walk with both subjects.
func (w *walk) both(step func(*subject) error) {
	w.t.Helper()
	assert.NilError(w.t, step(w.machine))
	assert.NilError(w.t, step(w.process))
}
