package expand

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/nodevirt/nodevirt/imageunpack/confine"
)

// Service is a run of qemu-nbd that shows the content of a disk to this process, read-only. qemu-nbd runs as
// package confine describes.
type Service struct {
	Tool Tool
	// UID is the user that qemu-nbd runs as, which owns no other files. From may be of any owner.
	UID uint32
	// From is open for reading, and stays the caller's. Format is its format, by QEMU's name.
	From   *os.File
	Format string
	// Folder is for a socket, which is gone before qemu-nbd runs.
	Folder string
	// Started is as [Conversion.Started].
	Started func(pid int) error
}

// The descriptors that qemu-nbd inherits.
const (
	listenerFD = confine.ListenerFD
	servedFD   = listenerFD + 1
)

// endTime is how long qemu-nbd may take to end without connections.
const endTime = 5 * time.Second

// Run calls use with connections to the NBD server, whose disk has no name. The connections end when use
// returns, and qemu-nbd has ended when Run returns. It ends with this process.
func (s Service) Run(ctx context.Context, connections int, use func(all []net.Conn) error) (err error) {
	listener, all, err := connect(s.Folder, connections)
	defer func() {
		for _, c := range all {
			_ = c.Close()
		}
	}()
	if err != nil {
		return fmt.Errorf("serve a disk: %w", err)
	}
	defer func() { _ = listener.Close() }() // serve closes it, too
	running, kill := context.WithCancel(ctx)
	defer kill()
	ended := make(chan error, 1)
	go func() {
		err := s.serve(running, listener, connections)
		_ = listener.Close() // ends connections that were not taken
		ended <- err
	}()
	err = use(all)
	for _, c := range all {
		_ = c.Close()
	}
	var end error
	select {
	case end = <-ended: // as it does without connections
	case <-time.After(endTime):
		kill()
		<-ended
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(end, err)
}

// connect returns a socket that listens, and connections to it, which the kernel holds until a program takes them.
// The socket is in a folder, whose path may be long, for as long as connect runs.
func connect(folder string, n int) (listener *net.UnixListener, all []net.Conn, err error) {
	dir, err := os.Open(folder)
	if err != nil {
		return nil, nil, err
	}
	defer dir.Close()
	address := &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/.nbd-%s", dir.Fd(), rand.Text())}
	if listener, err = net.ListenUnix("unix", address); err != nil {
		return nil, nil, err
	}
	listener.SetUnlinkOnClose(false)
	for len(all) < n && err == nil {
		var c net.Conn
		if c, err = net.DialUnix("unix", nil, address); err == nil {
			all = append(all, c)
		}
	}
	if err = errors.Join(err, os.Remove(address.Name)); err != nil {
		_ = listener.Close() // nothing was taken
	}
	return listener, all, err
}

// serve runs qemu-nbd until its last connection ends.
func (s Service) serve(ctx context.Context, listener *net.UnixListener, connections int) error {
	private, err := confine.Private(s.From)
	if err != nil {
		return fmt.Errorf("serve a disk: %w", err)
	}
	socket, err := listener.File()
	if err != nil {
		return fmt.Errorf("serve a disk: %w", err)
	}
	defer socket.Close()
	started := func(pid int) error {
		// From now on the socket ends with qemu-nbd.
		err := errors.Join(socket.Close(), listener.Close())
		if s.Started != nil {
			err = errors.Join(err, s.Started(pid))
		}
		return err
	}
	disk := fmt.Sprintf("driver=%s,read-only=on,file.driver=file,file.filename=/proc/self/fd/%d", s.Format, servedFD)
	stderr := &head{}
	err = s.Tool.Run(ctx, confine.Program{
		Path: s.Tool.QemuNBD,
		Args: []string{"qemu-nbd", "--read-only", "--shared=" + strconv.Itoa(connections), "--image-opts", disk},
		UID:  s.UID, GID: s.UID, ReadAll: private,
		Descriptors: []int{listenerFD, servedFD}, Listens: true, EndsWithParent: true,
	}, []*os.File{socket, s.From}, nil, stderr, started)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx) // not "signal: killed"
	}
	return fmt.Errorf("serve a disk: %w: %q", err, bytes.TrimSpace(stderr.b))
}
