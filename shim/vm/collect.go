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
