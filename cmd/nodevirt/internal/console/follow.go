package console

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

const pollTime = 100 * time.Millisecond

// Follow writes a VM's log to out, without CRI's time and stream on each line,
// until ended is closed and all is written, or ctx ends.
func Follow(ctx context.Context, path string, ended <-chan struct{}, out io.Writer) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the VM's log: %w", err)
	}
	if err != nil {
		return fmt.Errorf("open the VM's log: %w", err)
	}
	defer f.Close()
	r, last := bufio.NewReader(f), false
	var part []byte // of a line that is not written to its end yet
	for {
		text, err := r.ReadBytes('\n')
		part = append(part, text...)
		if err == nil {
			if _, err := out.Write(message(part)); err != nil {
				return err
			}
			part = part[:0]
			continue
		}
		if !errors.Is(err, io.EOF) {
			return fmt.Errorf("read the VM's log: %w", err)
		}
		if last {
			return nil
		}
		select {
		case <-ended:
			last = true // one more look: the end may have come between
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollTime):
		}
	}
}

// message is what a line of a CRI log says: it is "TIME STREAM TAG MESSAGE",
// where the tag P tells that the line goes on in the next one.
func message(line []byte) []byte {
	fields := bytes.SplitN(line, []byte(" "), 4)
	if len(fields) < 4 {
		return line
	}
	if string(fields[2]) == "P" {
		return bytes.TrimSuffix(fields[3], []byte("\n"))
	}
	return fields[3]
}
