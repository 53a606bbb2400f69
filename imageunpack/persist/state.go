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

// magic begins the note of a volume that is being written.
const magic = "nodevirt: a registry disk is being written to this volume\n"

// state is what a volume tells of itself.
type state struct {
	disk   bool  // it is one
	volume int64 // the size of the volume itself
	// What the note says, of a volume that is being written.
	key  string
	size int64
	done int64 // bytes from the beginning on, the head apart
}

// noted is the note's form.
type noted struct {
	Key  string `json:"key"`
	Size int64  `json:"size"`
	Done int64  `json:"done"`
}

// look finds out what a volume is: empty if its first and last MiB are zeros.
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
			return state{volume: size}, nil //nolint:nilerr // it is begun anew
		}
		return state{key: n.Key, size: n.Size, done: n.Done, volume: size}, nil
	}
	tail := make([]byte, len(head))
	if _, err := w.volume.ReadAt(tail, size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return state{}, fmt.Errorf("read the volume: %w", err)
	}
	return state{disk: !isZero(head) || !isZero(tail), volume: size}, nil
}

// note writes, in one sector, how far the disk is written.
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
	if err := w.volume.Sync(); err != nil {
		return fmt.Errorf("write the volume: %w", err)
	}
	return nil
}

// fits refuses a device that is too small for the disk, and a disk that has no sector of its own.
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
		return false, fmt.Errorf("look at the volume: %w", err)
	}
	return info.Mode()&os.ModeDevice != 0, nil
}

// Size is a volume's, in bytes.
func Size(volume *os.File) (int64, error) {
	size, err := unix.Seek(int(volume.Fd()), 0, io.SeekEnd) // of a device, too
	if err != nil {
		return 0, fmt.Errorf("ask for the volume's size: %w", err)
	}
	return size, nil
}

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
