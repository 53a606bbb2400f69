package domain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"libvirt.org/go/libvirt"
)

// Dumps dumps the memory of running domains.
//
// libvirtd opens a path as root, and passes the file to QEMU. So the path is a named pipe in a
// folder of the node's administrator, and this process copies what QEMU writes to the file. A
// dump can be cancelled, which QEMU can't do: without a reader QEMU's writes fail. QEMU stops
// the guest's vCPUs meanwhile, and then resumes them if they ran, also without libvirtd.
// QEMU's own command is no way: libvirtd 9.0 crashes at the end of a dump that it did not begin.
type Dumps struct{ conn *Connection }

// Dump is where a guest's memory goes.
type Dump struct {
	// Pipe is the path at which the pipe is made, and removed afterwards.
	Pipe string
	// Limit bounds the dump, in bytes.
	Limit int64
	// Stall bounds a write to the file.
	Stall time.Duration
}

// The errors of dumps.
var (
	errStalled = errors.New("the volume does not take the dump: a write to it does not end")
	errTooLong = errors.New("the dump is longer than the guest's memory")
)

// Write writes the memory of a domain to a file, in ELF. It returns when QEMU has ended that, or
// ctx has ended, which cancels the dump, and closes the file then, or when a stalled write ends.
func (d *Dumps) Write(ctx context.Context, uuid string, to Dump, file *os.File) error {
	const op = "dump the memory of"
	p, err := newDumpPipe(to.Pipe)
	if err != nil {
		return &failure{op: op, object: "domain " + uuid, detail: errors.Join(err, file.Close())}
	}
	defer p.remove()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var since atomic.Pointer[time.Time]
	copied := make(chan error, 1)
	go func() {
		err := copyDump(file, p.reader, to.Limit, &since)
		copied <- errors.Join(err, file.Close())
		if err != nil {
			p.close() // QEMU's writes fail
		}
	}()
	stalled := make(chan struct{})
	go func() {
		for ctx.Err() == nil {
			if t := since.Load(); t != nil && time.Since(*t) > to.Stall {
				close(stalled)
				p.close()
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(to.Stall / 10):
			}
		}
	}()
	err = do(patient(ctx), d.conn, op, uuid, func(dom *libvirt.Domain) error {
		return dom.CoreDumpWithFormat(to.Pipe, libvirt.DOMAIN_CORE_DUMP_FORMAT_RAW, libvirt.DUMP_MEMORY_ONLY|libvirt.DUMP_LIVE)
	})
	if ctx.Err() != nil {
		p.close()
		return err
	}
	p.end()
	select {
	case failed := <-copied:
		if failed != nil { // the reason of libvirt's error
			return failed
		}
		return err
	case <-stalled:
		return errStalled
	}
}

// Clear removes the pipe of a dump that an earlier process began. libvirtd, which may wait for a
// reader of the pipe, goes on.
func (*Dumps) Clear(pipe string) error {
	f, err := os.OpenFile(pipe, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the pipe of a memory dump: %w", err)
	}
	return errors.Join(f.Close(), os.Remove(pipe))
}

// copyDump copies a dump. Since is when the write began that is under way; nil for none.
func copyDump(to io.Writer, from io.Reader, limit int64, since *atomic.Pointer[time.Time]) error {
	buffer := make([]byte, 1<<20)
	for {
		n, err := from.Read(buffer)
		if limit -= int64(n); limit < 0 {
			return errTooLong
		}
		if n > 0 {
			since.Store(new(time.Now()))
			if _, err := to.Write(buffer[:n]); err != nil {
				return err
			}
			since.Store(nil)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// dumpPipe is a named pipe. Until its end it has a writer, so that its reader waits for another
// one, and a reader, so that libvirtd never waits to open it.
type dumpPipe struct {
	path           string
	writer, reader *os.File
}

func newDumpPipe(path string) (_ dumpPipe, err error) {
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return dumpPipe{}, fmt.Errorf("make a pipe for the memory dump: %w", err)
	}
	p := dumpPipe{path: path}
	defer func() {
		if err != nil {
			p.close()
			p.remove()
		}
	}()
	// O_RDWR does not wait for the other side.
	if p.writer, err = os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0); err != nil {
		return p, fmt.Errorf("open the pipe of the memory dump: %w", err)
	}
	if p.reader, err = os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
		return p, fmt.Errorf("open the pipe of the memory dump: %w", err)
	}
	return p, nil
}

// end lets the reader read what QEMU has written, and then its end.
func (p dumpPipe) end() { _ = p.writer.Close() }

// close makes QEMU's writes fail.
func (p dumpPipe) close() {
	_ = p.writer.Close()
	_ = p.reader.Close()
}

// remove removes the pipe's name. What has it open keeps it.
func (p dumpPipe) remove() {
	_ = p.reader.Close()
	_ = os.Remove(p.path)
}
