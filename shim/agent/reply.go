package agent

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxText bounds a text from a guest that is kept, in bytes.
const maxText = 256

// decodeReply decodes the answer to a command into result, which may be nil. It
// ignores unknown fields, which newer agents send.
func decodeReply(command string, line []byte, result any) error {
	var reply struct {
		Return json.RawMessage `json:"return"`
		Error  *struct {
			Class string `json:"class"`
			Desc  string `json:"desc"`
		} `json:"error"`
	}
	if err := json.Unmarshal(line, &reply); err != nil {
		return fmt.Errorf("%w: %s: %s", ErrGarbled, command, clean(err.Error()))
	}
	switch {
	case reply.Error != nil:
		return &refusal{command: command, class: clean(reply.Error.Class), text: clean(reply.Error.Desc)}
	case reply.Return == nil:
		return fmt.Errorf("%w: %s: neither a result nor an error", ErrGarbled, command)
	case result == nil:
		return nil
	}
	if err := json.Unmarshal(reply.Return, result); err != nil {
		return fmt.Errorf("%w: %s: %s", ErrGarbled, command, clean(err.Error()))
	}
	return nil
}

// started is the result of guest-exec.
type started struct {
	PID int64 `json:"pid"`
}

func (s started) check() error {
	if s.PID <= 0 {
		return fmt.Errorf("%w: process id %d", ErrGarbled, s.PID)
	}
	return nil
}

// progress is the result of guest-exec-status. The fields after Exited are set once it is true.
type progress struct {
	Exited       bool   `json:"exited"`
	ExitCode     *int64 `json:"exitcode"`
	Signal       *int64 `json:"signal"`
	Out          []byte `json:"out-data"`
	Err          []byte `json:"err-data"`
	OutTruncated bool   `json:"out-truncated"`
	ErrTruncated bool   `json:"err-truncated"`
}

// Bounds of numbers from a guest. A Windows guest's exit codes have 32 bits, signed or unsigned.
const (
	minCode   = -1 << 31
	maxCode   = 1<<32 - 1
	maxSignal = 127
)

// result validates and converts the status of a command that has exited.
func (p progress) result() (Result, error) {
	r := Result{
		Stdout: p.Out, StdoutTruncated: p.OutTruncated,
		Stderr: p.Err, StderrTruncated: p.ErrTruncated,
	}
	switch {
	case len(p.Out) > maxStream || len(p.Err) > maxStream:
		return Result{}, fmt.Errorf("%w: %d and %d bytes of output", ErrGarbled, len(p.Out), len(p.Err))
	case p.Signal != nil && (*p.Signal <= 0 || *p.Signal > maxSignal):
		return Result{}, fmt.Errorf("%w: signal %d", ErrGarbled, *p.Signal)
	case p.Signal != nil:
		r.Code = 128 + int32(*p.Signal) // as shells report it
	case p.ExitCode == nil:
		return Result{}, fmt.Errorf("%w: exited without exit code or signal", ErrGarbled)
	case *p.ExitCode < minCode || *p.ExitCode > maxCode:
		return Result{}, fmt.Errorf("%w: exit code %d", ErrGarbled, *p.ExitCode)
	default:
		r.Code = int32(uint32(*p.ExitCode)) // the same 32 bits
	}
	return r, nil
}

// clean returns a guest's text as one short printable line.
func clean(text string) string {
	cut := len(text) > maxText
	if cut {
		text = text[:maxText]
		for len(text) > 0 && !utf8.ValidString(text) && maxText-len(text) < utf8.UTFMax {
			text = text[:len(text)-1]
		}
	}
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, text)
	if cut {
		text += "…"
	}
	return text
}
