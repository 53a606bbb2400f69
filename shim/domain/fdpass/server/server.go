// Package server passes open files to the program that libvirt starts in QEMU's place, which asks for them by
// package fdpass.
package server

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/shim/domain/fdpass"
)

// patience bounds the time in which a QEMU takes its files.
const patience = 10 * time.Second

// Server is a socket that passes files.
type Server struct {
	listener *net.UnixListener
	done     chan struct{}
}

// Serve passes a text and files to who connects to a socket that it makes, which only a VM's user can. The
// caller must close the server, and the files after that.
func Serve(path string, uid, gid uint32, text string, files ...*os.File) (*Server, error) {
	if err := fdpass.Check(text, len(files)); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(path); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make the socket for QEMU's files: %w", err)
	}
	err = os.Chmod(path, 0o600)
	if err == nil {
		err = os.Lchown(path, int(uid), int(gid))
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s := &Server{listener: l, done: make(chan struct{})}
	go s.run(text, files)
	return s, nil
}

func (s *Server) run(text string, files []*os.File) {
	defer close(s.done)
	fds := make([]int, 0, len(files))
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	for {
		c, err := s.listener.AcceptUnix()
		if err != nil {
			return // it is closed
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		// Without its files QEMU's start fails, and says so.
		_, _, _ = c.WriteMsgUnix([]byte(text), unix.UnixRights(fds...), nil)
		_ = c.Close()
	}
}

// Close removes the socket.
func (s *Server) Close() error {
	err := s.listener.Close()
	<-s.done
	return err
}
