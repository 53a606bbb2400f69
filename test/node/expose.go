package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
)

// descriptors are the files that a node's first process is given.
type descriptors []*os.File

func (d descriptors) close() {
	for _, f := range d {
		_ = f.Close() // the process has its own
	}
}

// descriptors makes what the supervisor expects behind its standard files, and the other end of a bound
// node's lifeline.
func (o Options) descriptors() (all descriptors, lifeline *os.File, err error) {
	defer func() {
		if err != nil {
			all.close()
		}
	}()
	if o.Bound {
		r, w, err := os.Pipe()
		if err != nil {
			return all, nil, fmt.Errorf("bind node to this process: %w", err)
		}
		all, lifeline = append(all, r), w
	}
	if o.Expose == "" {
		return all, lifeline, nil
	}
	f, address, err := listen()
	if err != nil {
		return all, lifeline, err
	}
	if !o.Bound { // it follows the lifeline
		null, err := os.Open(os.DevNull)
		if err != nil {
			return append(all, f), nil, fmt.Errorf("fill the lifeline's place: %w", err)
		}
		all = append(all, null)
	}
	_, err = writeFiles(map[string]string{o.etc("exposed"): address})
	return append(all, f), lifeline, err
}

// listen listens on a free port of the machine's loopback.
func listen() (f *os.File, address string, err error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, "", fmt.Errorf("expose a port: %w", err)
	}
	defer func() { err = errors.Join(err, l.Close()) }() // f is a copy
	f, err = l.(*net.TCPListener).File()
	return f, l.Addr().String(), err
}

// Exposed is the address of the machine's loopback that leads to Options.Expose.
func (n *Node) Exposed() (netip.AddrPort, error) {
	text, err := os.ReadFile(n.o.etc("exposed"))
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("find the exposed port of node %s: %w", n.o.Name, err)
	}
	return netip.ParseAddrPort(strings.TrimSpace(string(text)))
}
