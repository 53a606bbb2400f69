package image

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
)

// sparse writes holes in place of zeros, since a small layer can expand to a huge file of
// zeros.
func sparse(f *os.File, r io.Reader) error {
	const block = 64 << 10
	buf, zeros, size := make([]byte, block), make([]byte, block), int64(0)
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 && !bytes.Equal(buf[:n], zeros[:n]) {
			if _, err := f.WriteAt(buf[:n], size); err != nil {
				return err
			}
		}
		size += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return f.Truncate(size)
		}
		if err != nil {
			return err
		}
	}
}

// cancelable is a reader that fails when ctx ends.
type cancelable struct {
	ctx context.Context
	r   io.Reader
}

func (c cancelable) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}
