package console

import (
	"bytes"
	"time"
)

// maxLine is how many bytes of a line go into one record; containerd's default.
const maxLine = 16 << 10

// stampFormat is the kubelet's RFC3339NanoFixed (k8s.io/cri-client/pkg/logs).
const stampFormat = "2006-01-02T15:04:05.000000000Z07:00"

// Tags of the CRI log format: a full record ends its line, a partial one is continued by the next.
const (
	full    = " stdout F "
	partial = " stdout P "
)

// lines makes records of the CRI log format from the bytes that a serial console prints. A line
// longer than max becomes several records. The CR of a CR LF is dropped, as containerd drops it
// for containers; all other bytes are kept, NUL and invalid UTF-8 too, since readers of the format
// split at LF and at the first three spaces and take the rest as it is.
type lines struct {
	max     int    // bytes of a line in one record
	pending []byte // of the current line, not in a record yet; at most max+1 between calls
	open    bool   // the last record was partial
}

// feed appends to out the records that data completes.
func (l *lines) feed(out, data []byte, now time.Time) []byte {
	for len(data) > 0 {
		text, rest, ended := bytes.Cut(data, []byte{'\n'})
		l.pending = append(l.pending, text...)
		data = rest
		if ended {
			out = l.end(out, now)
		}
	}
	// A CR may yet turn out to be the end of a line that just fits.
	for len(l.pending) > l.max && (len(l.pending) != l.max+1 || !bytes.HasSuffix(l.pending, []byte{'\r'})) {
		out = l.emit(out, partial, l.max, now)
	}
	return out
}

// end appends the records of the pending line, to which a LF has come.
func (l *lines) end(out []byte, now time.Time) []byte {
	l.pending = bytes.TrimSuffix(l.pending, []byte{'\r'})
	for len(l.pending) > l.max {
		out = l.emit(out, partial, l.max, now)
	}
	return l.emit(out, full, len(l.pending), now)
}

// flush appends what is pending as a partial record: a prompt, after which the guest is silent. A
// CR at the end is held back, for the LF that may follow it.
func (l *lines) flush(out []byte, now time.Time) []byte {
	return l.emitSome(out, len(bytes.TrimSuffix(l.pending, []byte{'\r'})), now)
}

// flushAll appends everything that is pending: nothing follows.
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

// notice appends a line of nodevirt's own, for which a line of the guest's that is open is ended.
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

// flushable says whether flush would write something.
func (l *lines) flushable() bool {
	return len(bytes.TrimSuffix(l.pending, []byte{'\r'})) > 0
}

// trim gives back the memory of a long line, for the time in which the guest is silent.
func (l *lines) trim() {
	if len(l.pending) == 0 {
		l.pending = nil
	}
}

// reset forgets what is pending; it will be read again, or is given up.
func (l *lines) reset() { l.pending = l.pending[:0] }
