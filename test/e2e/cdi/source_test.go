//go:build cdi

package cdi

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
)

// Paths of the source.
const (
	diskPath = "/disk.qcow2"
	heldPath = "/held.qcow2"
	noPath   = "/missing.qcow2"
)

// source is a web server with a disk, in the control plane's network.
type source struct {
	url     string
	reached chan struct{} // closed when the held disk is read
	release func()        // lets its readers go on
}

// serve runs the source until the process ends.
func serve(ctx context.Context, disk string) (*source, error) {
	listener, err := suite.Control().Listen(ctx, "tcp", net.JoinHostPort(suite.ControlAddress(), "0"))
	if err != nil {
		return nil, fmt.Errorf("serve a disk: %w", err)
	}
	s := &source{url: "http://" + listener.Addr().String(), reached: make(chan struct{})}
	released := make(chan struct{})
	s.release = sync.OnceFunc(func() { close(released) })
	reach := sync.OnceFunc(func() { close(s.reached) })
	file := func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, disk) }
	paths := http.NewServeMux()
	paths.HandleFunc(diskPath, file)
	paths.HandleFunc(heldPath, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			reach()
			select {
			case <-released:
			case <-r.Context().Done():
				return
			}
		}
		file(w, r)
	})
	go func() { _ = http.Serve(listener, paths) }()
	return s, nil
}
