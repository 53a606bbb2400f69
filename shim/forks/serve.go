package forks

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds the time in which a QEMU takes its RAM.
const patience = 10 * time.Second

// Server passes RAM to a QEMU that starts, which asks for it by package ramfd.
type Server struct {
	listener *net.UnixListener
	done     chan struct{}
}

// Serve passes ram to who connects to a socket that it makes, which only a VM's user can. The caller
// must close the server, and ram after that.
func Serve(path string, uid, gid uint32, ram *os.File) (*Server, error) {
	if err := os.RemoveAll(path); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make the socket for the guest's RAM: %w", err)
	}
	err = os.Chmod(path, 0o600)
	if err == nil {
		err = os.Lchown(path, int(uid), int(gid))
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	s := &Server{listener: l, done: make(chan struct{})}
	go s.run(ram)
	return s, nil
}

func (s *Server) run(ram *os.File) {
	defer close(s.done)
	for {
		c, err := s.listener.AcceptUnix()
		if err != nil {
			return // it is closed
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		// Without RAM QEMU's start fails, and says so.
		_, _, _ = c.WriteMsgUnix([]byte{0}, unix.UnixRights(int(ram.Fd())), nil)
		_ = c.Close()
	}
}

// Close removes the socket.
func (s *Server) Close() error {
	err := s.listener.Close()
	<-s.done
	return err
}
