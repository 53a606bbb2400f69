package supervisor

import (
	"errors"
	"fmt"
	"net"
	"net/rpc"
	"syscall"

	"golang.org/x/sys/unix"
)

// service is what the supervisor offers on its socket; only root reaches it.
type service struct{ daemons *daemons }

// Signal names a daemon and what to send it.
type Signal struct {
	Name   string
	Signal syscall.Signal
}

// None stands for no argument and for no reply.
type None struct{}

func (s *service) Start(d Daemon, pid *int) (err error) {
	*pid, err = s.daemons.start(d)
	return err
}

func (s *service) Signal(x Signal, _ *None) error { return s.daemons.signal(x.Name, x.Signal) }

func (s *service) List(_ None, all *[]State) error {
	*all = s.daemons.list()
	return nil
}

func serve(l net.Listener, d *daemons) {
	server := rpc.NewServer()
	// It fails only for a type without methods.
	if err := server.RegisterName("Node", &service{d}); err != nil {
		panic(err)
	}
	server.Accept(l)
}

// Client gives orders to a supervisor. Close it after use.
type Client struct {
	rpc *rpc.Client
	pid int
}

// Dial connects to the supervisor at a socket, as the machine sees its path.
func Dial(path string) (*Client, error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return nil, fmt.Errorf("reach the node: %w", err)
	}
	pid, err := peer(conn.(*net.UnixConn))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find the node's first process: %w", err), conn.Close())
	}
	return &Client{rpc.NewClient(conn), pid}, nil
}

// peer is the process that listens at the other end, by its number in this process's namespace.
func peer(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}

// PID is the supervisor's process, as the machine sees it.
func (c *Client) PID() int { return c.pid }

// Close ends the connection.
func (c *Client) Close() error { return c.rpc.Close() }

// Start runs a daemon and returns its process, as the node sees it. It is an error if a daemon of
// that name runs.
func (c *Client) Start(d Daemon) (pid int, err error) {
	err = c.rpc.Call("Node.Start", d, &pid)
	return pid, err
}

// Signal sends a signal to a daemon; an error if it does not run.
func (c *Client) Signal(name string, sig syscall.Signal) error {
	return c.rpc.Call("Node.Signal", Signal{name, sig}, &None{})
}

// List returns the daemons that were started, living or not, by name.
func (c *Client) List() (all []State, err error) {
	err = c.rpc.Call("Node.List", None{}, &all)
	return all, err
}
