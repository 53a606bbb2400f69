package console

import (
	"bytes"
	"time"
)

// maxLine bounds the bytes of a line in one record; it is containerd's default.
const maxLine = 16 << 10

// stampFormat is the kubelet's RFC3339NanoFixed (k8s.io/cri-client/pkg/logs).
const stampFormat = "2006-01-02T15:04:05.000000000Z07:00"

// Tags of the CRI log format: a full record ends its line, a partial one is continued by the next.
const (
	full    = " stdout F "
	partial = " stdout P "
)

// lines converts the output of a serial console to records of the CRI log format. A
// line longer than max becomes several records. The CR of a CR LF is dropped, as by
// containerd. All other bytes are kept, including NUL and invalid UTF-8, since
// readers of the format split at LF and at the first three spaces only.
type lines struct {
	max     int    // bytes of a line in one record
	pending []byte // of the current line, not in a record yet; at most max+1 between calls
	open    bool   // the last record was partial
}

// feed appends the records that data completes to out.
func (l *lines) feed(out, data []byte, now time.Time) []byte {
	for len(data) > 0 {
		text, rest, ended := bytes.Cut(data, []byte{'\n'})
		l.pending = append(l.pending, text...)
		data = rest
		if ended {
			out = l.end(out, now)
		}
	}
	// A CR may be the end of a line that just fits.
	for len(l.pending) > l.max && (len(l.pending) != l.max+1 || !bytes.HasSuffix(l.pending, []byte{'\r'})) {
		out = l.emit(out, partial, l.max, now)
	}
	return out
}

// end appends the records of the pending line, which a LF completes.
func (l *lines) end(out []byte, now time.Time) []byte {
	l.pending = bytes.TrimSuffix(l.pending, []byte{'\r'})
	for len(l.pending) > l.max {
		out = l.emit(out, partial, l.max, now)
	}
	return l.emit(out, full, len(l.pending), now)
}

// flush appends the pending bytes as a partial record, for a prompt after which the
// guest is silent. It keeps a CR at the end, which a LF may follow.
func (l *lines) flush(out []byte, now time.Time) []byte {
	return l.emitSome(out, len(bytes.TrimSuffix(l.pending, []byte{'\r'})), now)
}

// flushAll appends all pending bytes, since nothing follows.
func (l *lines) flushAll(out []byte, now time.Time) []byte {
	return l.emitSome(out, len(l.pending), now)
}

func (l *lines) emitSome(out []byte, n int, now time.Time) []byte {
	for ; n > l.max; n -= l.max {
		out = l.emit(out, partial, l.max, now)
	}
	if n > 0 {
		out = l.emit(out, partial, n, now)
	}
	return out
}

// notice appends a line by nodevirt, and ends an open line of the guest before it.
// Nothing may be pending.
func (l *lines) notice(out []byte, text string, now time.Time) []byte {
	if l.open {
		out = l.emit(out, full, 0, now)
	}
	return append(append(append(now.UTC().AppendFormat(out, stampFormat), full...), text...), '\n')
}

// emit appends a record of the first n pending bytes.
func (l *lines) emit(out []byte, tag string, n int, now time.Time) []byte {
	out = now.UTC().AppendFormat(out, stampFormat)
	out = append(out, tag...)
	out = append(out, l.pending[:n]...)
	l.pending = l.pending[:copy(l.pending, l.pending[n:])]
	l.open = tag == partial
	return append(out, '\n')
}

// flushable reports whether flush would write a record.
func (l *lines) flushable() bool {
	return len(bytes.TrimSuffix(l.pending, []byte{'\r'})) > 0
}

// trim frees the memory of a long line while the guest is silent.
func (l *lines) trim() {
	if len(l.pending) == 0 {
		l.pending = nil
	}
}

// reset drops the pending bytes, which are read again or skipped.
func (l *lines) reset() { l.pending = l.pending[:0] }
