// Package supervisor is the first process of a development node: PID 1 of its namespaces.
//
// It owns the node's mounts, its place in the cgroup tree, and its daemons: it starts them on
// request, knows which of them live, and reaps everything that ends in the node at once, as libvirt
// needs to see its QEMU processes end. Because it is PID 1, everything in the node ends when it
// does. Which daemons there are, and when they are ready, is package node's matter.
package supervisor

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

// Config is the supervisor's configuration, which it reads at its start.
type Config struct {
	Hostname string
	Cgroup   string // of the daemons, from the root of every hierarchy
	Run      string // becomes /run in the node
	Binds    []Bind
	Bound    bool   // end when descriptor 3 is closed at its other end
	Forward  string // a TCP address, which clients of the listener at descriptor 4 are connected to
}

// Bind shows From, a folder or a file, as To in the node. A folder is made where To is missing.
type Bind struct{ From, To string }

// Socket is where the supervisor listens, in Config.Run.
const Socket = "init.sock"

// Descriptors that the supervisor is started with: one whose end of file ends a bound node, and a
// listener of the machine's network namespace.
const (
	lifeline = 3
	listener = 4
)

// Run sets the node up and serves until it gets a request to end. It must be called by PID 1 of new
// mount, network, UTS, IPC and PID namespaces. It returns for the process to exit: the kernel then
// kills what runs in the node and holds the exit back until all is gone.
func Run(c Config) error {
	if os.Getpid() != 1 {
		return fmt.Errorf("supervise node: process %d is not the first of its namespace", os.Getpid())
	}
	if err := enter(c); err != nil {
		return err
	}
	l, err := net.Listen("unix", filepath.Join("/run", Socket))
	if err != nil {
		return fmt.Errorf("listen for orders: %w", err)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	gone := make(chan struct{})
	if c.Bound {
		go watch(os.NewFile(lifeline, "lifeline"), gone)
	}
	if c.Forward != "" {
		from, err := net.FileListener(os.NewFile(listener, "listener"))
		if err != nil {
			return fmt.Errorf("take the listener over: %w", err)
		}
		go forward(from, c.Forward)
	}

	d := newDaemons()
	go d.reap()
	go serve(l, d)
	select {
	case <-stop:
	case <-gone:
	}
	return nil
}

func enter(c Config) error {
	if err := Join(os.Getpid(), c.Cgroup); err != nil {
		return err
	}
	if err := mounts(c); err != nil {
		return err
	}
	if err := network(); err != nil {
		return err
	}
	if err := syscall.Sethostname([]byte(c.Hostname)); err != nil {
		return fmt.Errorf("set host name %s: %w", c.Hostname, err)
	}
	return nil
}

// watch closes gone when the process that holds the other end of f has closed it or ended.
func watch(f *os.File, gone chan<- struct{}) {
	_, _ = f.Read(make([]byte, 1))
	close(gone)
}

// Read decodes the configuration that Write wrote.
func Read(path string) (Config, error) {
	var c Config
	text, err := os.ReadFile(path)
	if err != nil {
		return c, fmt.Errorf("read node's configuration: %w", err)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("decode %s: %w", path, err)
	}
	return c, nil
}

// Write keeps the configuration in a file.
func (c Config) Write(path string) error {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("encode node's configuration: %w", err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("write node's configuration: %w", err)
	}
	return nil
}
