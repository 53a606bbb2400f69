package forks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/checkpoint"
	"github.com/nodevirt/nodevirt/shim/domain/ramfd"
	"github.com/nodevirt/nodevirt/shim/ramstream"
)

// split makes RAM of a checkpoint's stream.
func (s *Store) split(ctx context.Context, e *entry, m checkpoint.Manifest, size int64, from *os.File) (_ *os.File, rest []byte, err error) {
	fd, err := unix.MemfdCreate("nodevirt-ram", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("make shared RAM: %w", err)
	}
	ram := os.NewFile(uintptr(fd), "nodevirt-ram")
	defer func() {
		if err != nil {
			ram.Close()
		}
	}()
	if err := ram.Truncate(size); err != nil {
		return nil, nil, fmt.Errorf("make shared RAM: %w", err)
	}
	stream, err := checkpoint.OpenMemory(from, m)
	if err != nil {
		return nil, nil, err
	}
	defer stream.Close()
	pages, devices := &bounded{store: s, of: e, to: ram}, &devices{store: s, of: e}
	if err := ramstream.Split(checkpoint.Within(ctx, stream), ramfd.Blocks(), size, pages, devices); err != nil {
		if errors.Is(err, ramstream.ErrFormat) {
			err = fmt.Errorf("%w: %w", ErrNotShared, err)
		}
		return nil, nil, err
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(ram.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, nil, fmt.Errorf("seal shared RAM: %w", err)
	}
	return ram, bytes.Clone(devices.b), nil
}

// bounded writes an entry's RAM within the store's limits.
type bounded struct {
	store *Store
	of    *entry
	to    io.WriterAt
}

func (b *bounded) WriteAt(p []byte, at int64) (int, error) {
	if err := b.store.grow(b.of.namespace, b.of.grants.ram, int64(len(p))); err != nil {
		return 0, err
	}
	return b.to.WriteAt(p, at)
}

// devices keeps what is not RAM, within the store's limits.
type devices struct {
	store *Store
	of    *entry
	b     []byte
}

func (d *devices) Write(p []byte) (int, error) {
	if len(d.b)+len(p) > MaxOutline {
		return 0, fmt.Errorf("%w: the devices have more than %d bytes", ErrNotShared, MaxOutline)
	}
	if err := d.store.grow(d.of.namespace, d.of.grants.outline, int64(len(p))); err != nil {
		return 0, err
	}
	d.b = append(d.b, p...)
	return len(p), nil
}
