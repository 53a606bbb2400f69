package vm

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// collectAgain is how long an expanded disk may stay whose image is gone, should
// containerd's word of that not have come.
const collectAgain = time.Minute

// collectAfter is how long containerd's CRI may take until an image's name that was
// removed is none of its own.
const collectAfter = 500 * time.Millisecond

// collectDisks removes the expanded disks of images that are gone, until ctx ends.
func (m *Manager) collectDisks(ctx context.Context) {
	removals := m.Unpacker.Removals(ctx)
	for {
		err := m.Expander.Collect(func(image string) (bool, error) { return m.hasImage(ctx, image) })
		if err != nil && ctx.Err() == nil {
			m.Logger.Warn("looking for expanded disks of images that are gone failed, trying on", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-removals:
			sleep(ctx, collectAfter) // containerd's CRI learns of it a little later
		case <-time.After(collectAgain):
		}
	}
}

func (m *Manager) hasImage(ctx context.Context, id string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	reply, err := m.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: id}})
	if err != nil {
		return false, fmt.Errorf("ask containerd for image %s: %w", id, err)
	}
	return reply.GetImage() != nil, nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
