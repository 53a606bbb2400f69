package console

import (
	"bytes"
	"fmt"
	"time"
)

// skip drops output if the guest is too far ahead, even while the log cannot be
// written: otherwise the raw file would fill the disk.
func (f *follower) skip(s *scratch) error {
	size, err := f.raw.size()
	if err != nil {
		return err
	}
	if read := f.at.offset + int64(len(f.lines.pending)); size < read {
		// QEMU only appends. Another process, or a guest that has compromised QEMU,
		// has truncated the file.
		if !f.shrunk {
			f.shrunk = true
			f.log.Warn("console file has shrunk, continuing at its start", "file", f.Raw, "size", size, "read", read)
		}
		f.lines.reset()
		f.at.offset, f.raw.freed = 0, 0
	}
	if size-f.at.offset <= maxLag {
		return nil
	}
	target := size - keepLag
	n, err := f.raw.read(s.in[:], target)
	if err != nil {
		return err
	}
	if i := bytes.IndexByte(s.in[:n], '\n'); i >= 0 {
		target += int64(i) + 1
	}
	f.lines.reset()
	f.at.dropped += target - f.at.offset
	f.at.offset = target
	f.settle()
	return nil
}

// confess writes to the log how much output is missing there.
func (f *follower) confess(s *scratch, now time.Time) error {
	if f.at.dropped == 0 {
		return nil
	}
	text := fmt.Sprintf("[nodevirt: %d bytes of console output dropped: more than %d were waiting to be logged]",
		f.at.dropped, maxLag)
	s.records = f.lines.notice(s.records[:0], text, now)
	next := f.at
	next.dropped = 0
	return f.write(s, next)
}
