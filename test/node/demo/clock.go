package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// clock writes lines with the time since its start.
type clock struct {
	start time.Time
	out   io.Writer
}

func (c *clock) line(format string, args ...any) {
	fmt.Fprintf(c.out, "%6.1fs  %s\n", time.Since(c.start).Seconds(), fmt.Sprintf(format, args...))
}

// Write takes the lines of other packages, whole ones.
func (c *clock) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		c.line("%s", strings.TrimSuffix(line, "\n"))
	}
	return len(p), nil
}
