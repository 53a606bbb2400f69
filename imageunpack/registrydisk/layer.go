package registrydisk

import (
	"context"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/registrydisk/layout"
)

// layer returns the disk's layer. Progress gets the bytes of the first read.
func (d Disk) layer(ctx context.Context, o Options) (mutate.Addendum, error) {
	progress := o.Progress
	open := func() io.ReadCloser {
		w := progress
		progress = nil
		return d.archive(ctx, w, o.Lazy)
	}
	if o.Lazy {
		return Lazy(open)
	}
	l, err := layout.Plain(open)
	return mutate.Addendum{Layer: l}, err
}

// archive returns a reader of the archive, which is written while it is read. Arranged says that a qcow2 file may
// have its tables first.
func (d Disk) archive(ctx context.Context, progress io.Writer, arranged bool) io.ReadCloser {
	r, w := io.Pipe()
	go func() { _ = w.CloseWithError(d.write(ctx, w, progress, arranged)) }() // the error reaches the reader
	return r
}

func (d Disk) write(ctx context.Context, w io.Writer, progress io.Writer, arranged bool) error {
	f, info, err := open(d.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	if info.Size() != d.Size {
		return fmt.Errorf("disk %s has changed since it was checked: is a VM using it?", d.Path)
	}
	var content io.Reader = &io.LimitedReader{R: f, N: d.Size}
	size := d.Size
	if arranged {
		a, ok, err := imageunpack.Arrange(f, size)
		if err != nil {
			return fmt.Errorf("put the tables of disk %s before its data: %w", d.Path, err)
		}
		if ok {
			content, size = a.Reader(), a.Size()
		}
	}
	if progress != nil {
		content = io.TeeReader(content, progress)
	}
	err = layout.Write(w, layout.File{Path: d.Name(), Size: size}, func(w io.Writer) error {
		_, err := io.CopyBuffer(w, cancelable{ctx, content}, make([]byte, 1<<20))
		return err
	})
	if err != nil {
		return fmt.Errorf("archive disk %s: %w", d.Path, err)
	}
	return nil
}

// cancelable ends a copy when ctx ends.
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

// allocated returns how many bytes a file takes on its file system.
func allocated(info os.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return info.Size()
}
