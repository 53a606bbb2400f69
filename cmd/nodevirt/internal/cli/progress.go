package cli

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// IsTerminal reports whether w is a terminal.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Bar is an io.Writer that shows on a terminal how many bytes of a total were written to
// it; elsewhere it is silent. The caller must call Done.
type Bar struct{ bar *progressbar.ProgressBar }

// NewBar returns a bar on w. The total is in bytes, -1 if unknown.
func NewBar(w io.Writer, total int64, what string) *Bar {
	return &Bar{progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetVisibility(IsTerminal(w)),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowBytes(true),
		progressbar.OptionShowCount(),
		progressbar.OptionShowTotalBytes(true),
		progressbar.OptionUseIECUnits(true),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetPredictTime(total > 0),
		progressbar.OptionSetSpinnerChangeInterval(0), // as in Spin
		progressbar.OptionClearOnFinish(),
	)}
}

func (b *Bar) Write(p []byte) (int, error) { return b.bar.Write(p) }

// Set sets how many bytes are done.
func (b *Bar) Set(n int64) { _ = b.bar.Set64(n) }

// Done removes the bar from the terminal.
func (b *Bar) Done() { _ = b.bar.Exit(); _ = b.bar.Clear() }

// Percent shows progress as a percentage on a terminal; elsewhere it is silent. The
// caller must call Done.
type Percent struct {
	bar  *progressbar.ProgressBar
	what string
}

// NewPercent returns a bar on w.
func NewPercent(w io.Writer, what string) *Percent {
	return &Percent{progressbar.NewOptions64(1000,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetVisibility(IsTerminal(w)),
		progressbar.OptionSetDescription(what),
		progressbar.OptionSetWidth(30),
		progressbar.OptionSetSpinnerChangeInterval(0), // as in Spin
		progressbar.OptionClearOnFinish(),
	), what}
}

// Set sets the description of the current work, and its completed fraction, from 0 to 1.
func (p *Percent) Set(part string, done float64) {
	p.bar.Describe(p.what + ": " + part)
	_ = p.bar.Set64(min(int64(done*1000), 999)) // at its maximum the bar would remove itself
}

// Done removes the bar from the terminal.
func (p *Percent) Done() { _ = p.bar.Exit(); _ = p.bar.Clear() }

// Spin shows a spinner on w, if w is a terminal, until the returned function is called.
func Spin(w io.Writer, what string) (done func()) {
	if !IsTerminal(w) {
		return func() {}
	}
	bar := progressbar.NewOptions64(-1,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription(what),
		progressbar.OptionSpinnerType(14),
		// The library's own goroutine would continue to write after the end.
		progressbar.OptionSetSpinnerChangeInterval(0),
		progressbar.OptionSetElapsedTime(true),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionThrottle(100*time.Millisecond),
	)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = bar.Add(1)
			case <-stop:
				_ = bar.Exit()
				_ = bar.Clear()
				return
			}
		}
	}()
	return func() { close(stop); <-stopped }
}
