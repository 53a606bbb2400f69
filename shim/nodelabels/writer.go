package nodelabels

import (
	"context"
	"log/slog"
	"maps"
	"time"

	kubevirt "kubevirt.io/api/core/v1"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/kubelet"
)

const (
	// look is how often the Writer asks libvirt, and retries what failed.
	look = 15 * time.Second
	// again is how often the Writer reads the Node without a change: a Node that is made again, by a kubelet that
	// registers or from a backup, has no labels, and no VM starts there.
	again = 30 * time.Second
	// askTime is how long libvirtd may be away, such as for a restart, before the
	// scheduler avoids the node.
	askTime = 30 * time.Second
)

// Source returns the node's capabilities, or an error while it can start no VM.
type Source func(context.Context) (domain.Capabilities, error)

// Writer keeps the labels of the node up to date.
type Writer struct {
	// update gives the Node the wanted labels; nil: no labels are written. If partial is set, it removes none.
	update func(ctx context.Context, wanted map[string]string, partial bool) error
	source Source
	log    *slog.Logger

	// written are the labels of the last success, at.
	written map[string]string
	at      time.Time
	failed  bool
}

// New returns a Writer with a kubeconfig, which need not exist yet. With an empty path it
// writes nothing.
func New(kubeconfig string, source Source, log *slog.Logger) *Writer {
	w := &Writer{source: source, log: log}
	if kubeconfig != "" {
		w.update = (&node{api: kubelet.New(kubeconfig)}).update
	}
	return w
}

// Run writes labels until ctx ends.
func (w *Writer) Run(ctx context.Context) {
	if w.update == nil {
		return
	}
	t := time.NewTicker(look)
	defer t.Stop()
	for {
		w.step(ctx)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// step writes the labels if they changed. While libvirt does not answer, only the label
// without which the scheduler avoids the node goes.
func (w *Writer) step(ctx context.Context) {
	asking, cancel := context.WithTimeout(ctx, askTime)
	caps, down := w.source(asking)
	cancel()
	if ctx.Err() != nil {
		return
	}
	// Pods require that the label exists: only the scheduler compares that.
	wanted := map[string]string{}
	if down == nil {
		wanted = Of(caps)
		wanted[kubevirt.NodeSchedulable] = "true"
	}
	if w.written != nil && maps.Equal(wanted, w.written) && time.Since(w.at) < again {
		return
	}
	err := w.update(ctx, wanted, down != nil)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		if !w.failed {
			w.log.Warn("cannot label the node, will retry", "error", err)
		}
		w.failed, w.written = true, nil
	default:
		if _, could := w.written[kubevirt.NodeSchedulable]; down != nil && (could || w.written == nil) {
			w.log.Warn("no VM can start here: the node has no label until one can", "label", kubevirt.NodeSchedulable, "error", down)
		}
		w.failed, w.written, w.at = false, wanted, time.Now()
	}
}
