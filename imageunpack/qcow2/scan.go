package qcow2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// sector is the unit of a disk's size, in bytes.
	sector = 512
	// MaxSize is the maximum size of a disk, in bytes. A map of its clusters takes 32 MiB.
	MaxSize = 16 << 40
)

// Disk is a raw disk as a qcow2 file without the clusters that are zeros. Nothing may write the raw
// disk between [Scan] and the last Write.
type Disk struct {
	raw *os.File
	// size is that of the guest's disk, in bytes.
	size int64
	// has has a bit for each cluster with data, and count is their number.
	has   []byte
	count int64
	plan
}

// Scan reads a raw disk of a size, a file or a block device, and finds which clusters have data. The
// caller closes the file after the last use of the result. Progress, if not nil, gets
// the number of bytes of each step.
func Scan(ctx context.Context, raw *os.File, size int64, progress func(int64)) (*Disk, error) {
	if size <= 0 || size > MaxSize {
		return nil, fmt.Errorf("scan disk %s: it has %d bytes; want 1 to %d", raw.Name(), size, int64(MaxSize))
	}
	d := &Disk{raw: raw, size: (size + sector - 1) / sector * sector}
	clusters := (size + Cluster - 1) / Cluster
	d.has = make([]byte, (clusters+7)/8)
	buffer, zeros := make([]byte, Cluster), make([]byte, Cluster)
	for i := int64(0); i < clusters; i++ {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		next, err := nextData(raw, i*Cluster, size)
		if err != nil {
			return nil, fmt.Errorf("scan disk %s: %w", raw.Name(), err)
		}
		before := i
		if i = next / Cluster; i >= clusters {
			i = clusters - 1
		} else if err := d.read(buffer, i); err != nil {
			return nil, err
		} else if !bytes.Equal(buffer, zeros) {
			d.has[i/8] |= 1 << (i % 8)
			d.count++
		}
		if progress != nil {
			progress((i + 1 - before) * Cluster)
		}
	}
	d.plan = d.lay()
	return d, nil
}

// nextData returns the first byte from an offset on that may not be zero; the size for none. Block
// devices and some file systems do not know: all of them may have data.
func nextData(f *os.File, from, size int64) (int64, error) {
	at, err := unix.Seek(int(f.Fd()), from, unix.SEEK_DATA)
	switch {
	case err == nil:
		return max(at, from), nil
	case errors.Is(err, unix.ENXIO):
		return size, nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOTSUP):
		return from, nil
	}
	return 0, fmt.Errorf("find data: %w", err)
}

// read reads a cluster. What is behind the disk's end is zeros.
func (d *Disk) read(into []byte, cluster int64) error {
	n, err := d.raw.ReadAt(into, cluster*Cluster)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read disk %s: %w", d.raw.Name(), err)
	}
	clear(into[n:])
	return nil
}

// Size returns the size of the guest's disk, in bytes.
func (d *Disk) Size() int64 { return d.size }

// Length returns the length of the qcow2 file, in bytes.
func (d *Disk) Length() int64 { return d.clusters * Cluster }

// present reports whether a cluster has data.
func (d *Disk) present(cluster int64) bool {
	return cluster/8 < int64(len(d.has)) && d.has[cluster/8]>>(cluster%8)&1 == 1
}
