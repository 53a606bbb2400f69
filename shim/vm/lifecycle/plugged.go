package lifecycle

import (
	"context"
	"io"
	"os"

	"github.com/nodevirt/nodevirt/netsetup"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/domain/fdpass/server"
	"github.com/nodevirt/nodevirt/shim/domain/tapfd"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vm/layout"
	"github.com/nodevirt/nodevirt/shim/vm/table"
)

// PassTaps opens the taps that plug-ins made for the VM of a guest that comes, and passes them to its QEMU, until the
// caller closes the result.
func (l *Lifecycle) PassTaps(ctx context.Context, v *table.VM) (io.Closer, error) {
	r := v.Record()
	if r.Network == nil {
		return closing(func() error { return nil }), nil
	}
	devices, err := l.starts.parts.network.OpenPlugged(ctx, *r.Network)
	if err != nil {
		return nil, err
	}
	passed, err := passTaps(l.starts.parts.layout, r, devices)
	if err != nil {
		closePlugged(devices)
		return nil, err
	}
	return closing(func() error {
		err := passed.Close()
		closePlugged(devices)
		return err
	}), nil
}

// closing is a function that closes something.
type closing func() error

// Close implements io.Closer.
func (c closing) Close() error { return c() }

func closePlugged(devices []netsetup.PluggedDevice) {
	for _, d := range devices {
		d.Close()
	}
}

// passTaps passes open taps to the VM's QEMU that starts, until the caller closes the result.
func passTaps(l layout.Layout, r record.Container, devices []netsetup.PluggedDevice) (io.Closer, error) {
	if len(devices) == 0 {
		return closing(func() error { return nil }), nil
	}
	var cards []tapfd.Card
	var files []*os.File
	for _, d := range devices {
		cards = append(cards, tapfd.Card{Alias: domain.NICAlias(d.Card), Queues: len(d.Files)})
		files = append(files, d.Files...)
	}
	return server.Serve(l.TapSocket(r.ID), r.Domain.UID, r.Domain.GID, tapfd.Text(cards), files...)
}
