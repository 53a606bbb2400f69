package agent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/nodevirt/nodevirt/internal/bounds"
)

const (
	// maxStream bounds what an agent captures of stdout and of stderr, in bytes:
	// GUEST_EXEC_MAX_OUTPUT of QEMU's qga.
	maxStream = 16 << 20
	// maxOutput bounds the answer that contains both, as base64.
	maxOutput = 2*(maxStream+2)/3*4 + smallAnswer
	// maxArguments bounds the total size of a command's arguments, as Linux does.
	maxArguments = 2 << 20
	// MaxInput bounds a command's input, in bytes.
	MaxInput = bounds.Input
	// maxExecs bounds how many commands one agent runs at once.
	maxExecs = 64
)

const (
	// The pauses between two polls of a command: a tenth of the time that it has
	// run, within these bounds. So callers wait little longer than the command takes.
	minPoll = 10 * time.Millisecond
	maxPoll = time.Second
	// killTime bounds the killing of a command whose caller gave up.
	killTime = 30 * time.Second
)

// Command is a command to run in a guest.
type Command struct {
	// Args are the program and its arguments. The guest looks a program without a
	// slash up in its agent's PATH.
	Args []string
	// Input is the program's stdin, of at most MaxInput bytes; nil is none.
	Input []byte
	// Read, if not nil, returns the input instead, once the command has its place among the agent's. The command calls
	// done when the agent has the input.
	Read func(ctx context.Context) (input []byte, done func(), err error)
}

func (c Command) check() error {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return fmt.Errorf("%w: no program given", ErrInvalid)
	}
	size := 0
	for _, arg := range c.Args {
		if !utf8.ValidString(arg) || strings.ContainsRune(arg, 0) {
			return fmt.Errorf("%w: argument %s: the guest agent accepts only UTF-8 without NUL bytes",
				ErrInvalid, strconv.Quote(clean(arg)))
		}
		size += len(arg) + 1
	}
	if size > maxArguments {
		return fmt.Errorf("%w: its arguments have %d bytes; the limit is %d", ErrInvalid, size, maxArguments)
	}
	if len(c.Input) > MaxInput {
		return fmt.Errorf("%w: its input has %d bytes; the guest agent accepts at most %d",
			ErrInvalid, len(c.Input), MaxInput)
	}
	return nil
}

// Result is the result of a command.
type Result struct {
	Stdout, Stderr []byte
	// The agent keeps the first 16 MiB of each stream.
	StdoutTruncated, StderrTruncated bool
	// Code is the exit code, or 128 + the signal that ended the process.
	Code int32
}

// Commands runs commands in one guest. Its methods may be called concurrently.
type Commands struct {
	agent     caller
	terminals chan Terminal // those that no command uses

	mu      sync.Mutex
	running int
}

// Exec runs a command as the agent's user, usually root, in the agent's environment
// and working directory. If ctx ends first, Exec kills the command and its
// descendants, if the guest has a shell, and returns ctx's cause.
func (c *Commands) Exec(ctx context.Context, command Command) (Result, error) {
	if err := command.check(); err != nil {
		return Result{}, err
	}
	if err := c.admit(); err != nil {
		return Result{}, err
	}
	defer c.leave()
	pid, err := c.startRead(ctx, command)
	if err != nil {
		return Result{}, err
	}
	r, err := c.wait(ctx, pid)
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, cause) {
		c.kill(context.WithoutCancel(ctx), pid)
	}
	return r, err
}

func (c *Commands) admit() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running >= maxExecs {
		return fmt.Errorf("%w: it runs %d commands; try again later", ErrBusy, c.running)
	}
	c.running++
	return nil
}

func (c *Commands) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
}

// startRead is start for a command whose input may have to be read first. Nothing keeps the input afterwards.
func (c *Commands) startRead(ctx context.Context, command Command) (int64, error) {
	if command.Read != nil {
		input, done, err := command.Read(ctx)
		if err != nil {
			return 0, err
		}
		defer done()
		command.Input = input
		if err := command.check(); err != nil {
			return 0, err
		}
	}
	return c.start(ctx, command)
}

// start starts a command and returns its process ID in the guest.
func (c *Commands) start(ctx context.Context, command Command) (int64, error) {
	var s started
	err := c.agent.call(ctx, "guest-exec", struct {
		Path    string   `json:"path"`
		Arg     []string `json:"arg,omitempty"`
		Input   []byte   `json:"input-data,omitempty"`
		Capture bool     `json:"capture-output"`
	}{command.Args[0], command.Args[1:], command.Input, true}, smallAnswer, &s)
	if r, ok := errors.AsType[*refusal](err); ok {
		if errors.Is(err, ErrDisabled) {
			return 0, fmt.Errorf("%w: remove guest-exec and guest-exec-status from the blocked RPCs "+
				"in its configuration, and restart it (%w)", ErrDisabled, err)
		}
		return 0, fmt.Errorf("%q %w: %s", clean(command.Args[0]), ErrNoProgram, r.text)
	}
	if err == nil {
		err = s.check()
	}
	return s.PID, err
}

// wait polls a command until it has ended.
func (c *Commands) wait(ctx context.Context, pid int64) (Result, error) {
	begun := time.Now()
	pause := time.NewTimer(minPoll)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return Result{}, context.Cause(ctx)
		case <-pause.C:
		}
		p, err := c.look(ctx, pid)
		if err != nil {
			return Result{}, err
		}
		if p.Exited {
			return p.result()
		}
		pause.Reset(min(max(time.Since(begun)/10, minPoll), maxPoll))
	}
}

func (c *Commands) look(ctx context.Context, pid int64) (progress, error) {
	var p progress
	err := c.agent.call(ctx, "guest-exec-status", started{pid}, maxOutput, &p)
	if r, ok := errors.AsType[*refusal](err); ok && !errors.Is(err, ErrDisabled) {
		// It does not know the process: the agent was restarted since.
		return p, fmt.Errorf("%w: %s", ErrGone, r.text)
	}
	if errors.Is(err, ErrAbsent) {
		err = ErrGone // it was connected when the command began
	}
	return p, err
}

// killTree kills a process and its descendants in a guest with a POSIX shell. The
// agent has no command for that.
const killTree = `end() { local below; below=$(cat /proc/"$1"/task/*/children 2>/dev/null)
kill -KILL "$1"; for below in $below; do end "$below"; done; }
end "$1" 2>/dev/null`

// kill kills a command, if possible, and has the agent drop its result.
func (c *Commands) kill(ctx context.Context, pid int64) {
	ctx, cancel := context.WithTimeout(ctx, killTime)
	defer cancel()
	killer, err := c.start(ctx, Command{Args: []string{"/bin/sh", "-c", killTree, "sh", strconv.FormatInt(pid, 10)}})
	if err != nil {
		return // without a shell the command continues to run
	}
	if _, err := c.wait(ctx, killer); err == nil {
		_, _ = c.wait(ctx, pid) // reads and drops its output
	}
}
