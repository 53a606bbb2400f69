package domain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/nodevirt/nodevirt/shim/vm/background"
)

const (
	// savedName is QEMU's name of the descriptor that takes a guest's memory.
	savedName = "nodevirt-memory"
	// saveRate is the bound of the stream's rate, in bytes a second: in effect none.
	saveRate = int64(1) << 50
	// savePoll is the time between two questions for the progress, cancelTime bounds a cancellation.
	savePoll   = 50 * time.Millisecond
	cancelTime = 10 * time.Second
)

// SaveMemory writes the state of a paused domain, but for its disks, to a pipe or a socket, which
// stays the caller's: close it when SaveMemory has returned, also after an error. The domain stays
// paused. QEMU has written all that it had in memory of the disks, and has closed them to others
// until [Lifecycle.Resume], without which it is not saved again.
//
// It exists because libvirt 9.0 saves a domain only to end it, or with snapshots of its disks.
// libvirt takes no notice of a copy that it did not begin.
func (l *Lifecycle) SaveMemory(ctx context.Context, uuid string, to *os.File) error {
	const op = "save the memory of"
	files, err := duplicate(map[string][]*os.File{"": {to}})
	if err != nil {
		return &failure{op: op, object: "domain " + uuid, detail: err}
	}
	rate, err := await(ctx, op, "domain "+uuid, func() (int64, error) {
		defer files.close()
		return onDomain(context.WithoutCancel(ctx), l.conn, op, uuid, func(dom *libvirt.Domain) (int64, error) {
			return beginSave(dom, files[""][0])
		})
	})
	if err == nil {
		err = l.awaitSave(ctx, uuid, op)
	}
	within, cancel := background.AtMost(context.WithoutCancel(ctx), cancelTime)
	defer cancel()
	return errors.Join(err, ignoreEnd(do(within, l.conn, op, uuid, func(dom *libvirt.Domain) error {
		if err != nil {
			if _, err := command(dom, "migrate_cancel", nil); err != nil {
				return err
			}
		}
		if rate == 0 {
			return nil
		}
		_, err := command(dom, "migrate-set-parameters", map[string]any{"max-bandwidth": rate})
		return err
	})))
}

// ignoreEnd returns nil for the error of a domain that has ended: the caller has another one.
func ignoreEnd(err error) error {
	if errors.Is(err, ErrNotRunning) || errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// beginSave begins to write a domain's state, and returns the bound of the rate before.
func beginSave(dom *libvirt.Domain, to *os.File) (rate int64, err error) {
	if state, _, err := dom.GetState(); err != nil {
		return 0, err
	} else if state != libvirt.DOMAIN_PAUSED {
		return 0, errors.New("the domain is not paused")
	}
	parameters, err := query[struct {
		Rate int64 `json:"max-bandwidth"`
	}](dom, "query-migrate-parameters", nil)
	if err != nil {
		return 0, err
	}
	rate = parameters.Rate
	if _, err := command(dom, "migrate-set-parameters", map[string]any{"max-bandwidth": saveRate}); err != nil {
		return 0, err
	}
	if _, err = command(dom, "getfd", map[string]any{"fdname": savedName}, *to); err != nil {
		return rate, err
	}
	_, err = command(dom, "migrate", map[string]any{"uri": "fd:" + savedName})
	return rate, err
}

// awaitSave waits until QEMU has written all.
func (l *Lifecycle) awaitSave(ctx context.Context, uuid, op string) error {
	for {
		done, err := onDomain(ctx, l.conn, op, uuid, saved)
		if err != nil || done {
			return err
		}
		background.Sleep(ctx, savePoll)
		if ctx.Err() != nil {
			return expired(ctx, op, "domain "+uuid)
		}
	}
}

// saved reports whether QEMU has written all.
func saved(dom *libvirt.Domain) (bool, error) {
	progress, err := query[struct {
		Status string `json:"status"`
		Error  string `json:"error-desc"`
	}](dom, "query-migrate", nil)
	if err != nil {
		return false, err
	}
	switch progress.Status {
	case "completed":
		return true, nil
	case "failed", "cancelled", "cancelling", "none", "":
		return false, fmt.Errorf("QEMU did not complete it: %s %s", progress.Status, progress.Error)
	}
	return false, nil
}
