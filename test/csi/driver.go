// Package csi is a CSI driver for the tests: its volumes and snapshots are files of a folder, which are
// attached to nodes as loop devices. Nodes must be on one machine, so that they see the same folder and
// the same devices.
//
// The package owns the folder and the driver's calls, as the CSI specification defines them, and the
// registration with a kubelet. Kubernetes' sidecars, which make the calls, are package cluster's.
//
// A copy of an attached volume has all that was written before the copy began. It is of one moment only
// where the folder's file system has reflinks, and copies nothing.
package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
)

// Name is the driver's, as StorageClasses have it.
const Name = "loop.nodevirt.io"

// version is in the driver's answers. A test's driver has no releases.
const version = "1"

// Options say what part of the driver to run.
type Options struct {
	Dir        string // volumes, snapshots and nodes; the same for all parts
	Endpoint   string // the Unix socket to serve at
	Controller bool   // serve the controller's calls
	Node       string // serve this node's calls; empty for none
	Registry   string // the kubelet's folder of plugins to register in; empty for none
	Log        *slog.Logger
}

// Serve runs the driver until ctx ends.
func Serve(ctx context.Context, o Options) error {
	s := state{
		volumes:   volumesIn(o.Dir),
		snapshots: store[snapshot]{filepath.Join(o.Dir, "snapshots")},
		nodes:     filepath.Join(o.Dir, "nodes"),
	}
	for _, dir := range []string{s.volumes.dir, s.snapshots.dir, s.nodes} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return fmt.Errorf("make the driver's folder: %w", err)
		}
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(calls{o.Log}.handle))
	spec.RegisterIdentityServer(server, &identity{controller: o.Controller})
	if o.Controller {
		spec.RegisterControllerServer(server, &controller{state: s, busy: newBusy()})
	}
	if o.Node != "" {
		n := &node{name: o.Node, state: s, busy: newBusy()}
		if err := n.announce(); err != nil {
			return err
		}
		spec.RegisterNodeServer(server, n)
	}
	stopped := make(chan error, 2)
	if err := serve(ctx, server, o.Endpoint, stopped); err != nil {
		return err
	}
	if o.Registry != "" {
		if err := serve(ctx, registration(o), filepath.Join(o.Registry, Name+"-reg.sock"), stopped); err != nil {
			server.Stop()
			return errors.Join(err, <-stopped)
		}
	}
	return <-stopped
}

func volumesIn(dir string) store[volume] { return store[volume]{filepath.Join(dir, "volumes")} }

// File returns the file with the bytes of a volume, in the driver's folder.
func File(dir, volume string) string { return volumesIn(dir).data(volume) }

// serve starts a server on a Unix socket, which a driver that was killed may have left.
func serve(ctx context.Context, server *grpc.Server, path string, stopped chan<- error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make the socket's folder: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the old socket: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	stop := context.AfterFunc(ctx, server.Stop)
	go func() {
		defer stop()
		stopped <- server.Serve(l)
	}()
	return nil
}
