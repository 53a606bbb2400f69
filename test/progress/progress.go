// Package progress prints how far a long command has come: each line with the time since the
// command began.
package progress

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Log writes lines with the seconds since it was made. Several goroutines may use it.
type Log struct {
	start time.Time
	mu    sync.Mutex
	out   io.Writer
}

// New begins to count.
func New(out io.Writer) *Log { return &Log{start: time.Now(), out: out} }

// Line writes one line, which format and its arguments make as fmt's do.
func (l *Log) Line(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.out, "%6.1fs  %s\n", time.Since(l.start).Seconds(), fmt.Sprintf(format, args...))
}

// Write takes the lines of other packages, whole ones.
func (l *Log) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		l.Line("%s", strings.TrimSuffix(line, "\n"))
	}
	return len(p), nil
}

// Of returns a writer of whole lines to out which says before each of them whose it is.
func Of(name string, out io.Writer) io.Writer { return &of{name: name, out: out} }

type of struct {
	name string
	out  io.Writer
}

// Write passes each line on by one separate write, as other writers of out may be busy too.
func (o *of) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		if _, err := fmt.Fprintf(o.out, "%s: %s", o.name, line); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}
