package shim

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/nodeproblems"
)

// roomPause is the time between two looks at the room for libvirtd's files.
const roomPause = 15 * time.Second

// watchRoom notes, until ctx ends, whether the next libvirtd would have room for the state of the guests that run.
func watchRoom(ctx context.Context, runDir string, problems *nodeproblems.Problems, log *slog.Logger) {
	t := time.NewTicker(roomPause)
	defer t.Stop()
	had := false
	for {
		err := domain.FindRoom(runDir)
		if !errors.Is(err, domain.ErrNoRoom) {
			err = nil // not known: libvirtd's folder is missing, or is being written
		}
		if has := err != nil; has != had {
			had = has
			if has {
				log.Error("a libvirtd that starts would end guests: do not restart it", "error", err)
			} else {
				log.Info("there is room again for the state of the guests that run")
			}
		}
		problems.Set(nodeproblems.NoRoomForLibvirtd, err)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}
