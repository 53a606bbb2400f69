package persist

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// magic is the beginning of the note of a volume in progress.
const magic = "nodevirt: a registry disk is being written to this volume\n"

// state is the state of a volume.
type state struct {
	disk   bool  // the volume is a complete disk
	volume int64 // the size of the volume itself
	// The note's fields, for a volume in progress.
	key  string
	size int64
	done int64 // bytes from the beginning on, without the head
}

// noted is the JSON form of the note.
type noted struct {
	Key  string `json:"key"`
	Size int64  `json:"size"`
	Done int64  `json:"done"`
}

// look returns the state of the volume. It is empty if its first and last MiB are zeros.
func (w *writer) look() (state, error) {
	size, err := Size(w.volume)
	if err != nil {
		return state{}, err
	}
	head := make([]byte, min(headSize, size))
	if _, err := w.volume.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return state{}, fmt.Errorf("read the volume: %w", err)
	}
	if text, begun := strings.CutPrefix(string(head[:min(sector, len(head))]), magic); begun {
		var n noted
		if err := json.Unmarshal(bytes.TrimRight([]byte(text), "\x00"), &n); err != nil || n.Done < 0 || n.Done%sector != 0 {
			return state{volume: size}, nil //nolint:nilerr // a damaged note: written from the start
		}
		return state{key: n.Key, size: n.Size, done: n.Done, volume: size}, nil
	}
	tail := make([]byte, len(head))
	if _, err := w.volume.ReadAt(tail, size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return state{}, fmt.Errorf("read the volume: %w", err)
	}
	return state{disk: !isZero(head) || !isZero(tail), volume: size}, nil
}

// note records, in one sector, how much of the disk is written. It does not sync it.
func (w *writer) note(done int64) error {
	text, err := json.Marshal(noted{Key: w.Key, Size: w.Size, Done: done})
	if err != nil {
		return err
	}
	b := make([]byte, sector)
	if copy(b, magic+string(text)) < len(magic)+len(text) {
		return fmt.Errorf("the key of %d bytes is too long", len(w.Key))
	}
	if _, err := w.volume.WriteAt(b, 0); err != nil {
		return fmt.Errorf("write the volume: %w", err)
	}
	return nil
}

// fits returns an error for a device that is too small for the disk.
func (w *writer) fits() error {
	size, err := Size(w.volume)
	if err != nil {
		return err
	}
	if w.device && size < w.Size {
		return fmt.Errorf("%w: the disk has %d bytes, and the volume %d: use a larger one", ErrUnfit, w.Size, size)
	}
	return nil
}

func isDevice(volume *os.File) (bool, error) {
	info, err := volume.Stat()
	if err != nil {
		return false, fmt.Errorf("stat the volume: %w", err)
	}
	return info.Mode()&os.ModeDevice != 0, nil
}

// Size returns the size of a volume in bytes.
func Size(volume *os.File) (int64, error) {
	size, err := unix.Seek(int(volume.Fd()), 0, io.SeekEnd) // works for devices too
	if err != nil {
		return 0, fmt.Errorf("get the volume's size: %w", err)
	}
	return size, nil
}

// isZero compares b with itself, shifted: the runtime compares words.
func isZero(b []byte) bool {
	return len(b) == 0 || b[0] == 0 && bytes.Equal(b[1:], b[:len(b)-1])
}
