package lifecycle

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vm/background"
)

// imageCollector removes expanded disks whose images are gone.
type imageCollector struct {
	images   Images
	store    ImageStore
	expanded Expanded
	log      *slog.Logger
}

const (
	// collectPause is how long an expanded disk may stay after its image, should
	// containerd's event have been missed.
	collectPause = time.Minute
	// collectDelay is how long containerd's CRI may take to learn that an image's
	// name was removed.
	collectDelay = 500 * time.Millisecond
)

// run removes expanded disks until ctx ends.
func (c *imageCollector) run(ctx context.Context) {
	removals := c.images.Removals(ctx)
	for {
		err := c.expanded.Collect(func(image string) (bool, error) { return c.has(ctx, image) })
		if err != nil && ctx.Err() == nil {
			c.log.Warn("looking for expanded disks of images that are gone failed, retrying", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-removals:
			background.Sleep(ctx, collectDelay)
		case <-time.After(collectPause):
		}
	}
}

func (c *imageCollector) has(ctx context.Context, id string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	reply, err := c.store.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: id}})
	if err != nil {
		return false, fmt.Errorf("ask containerd for image %s: %w", id, err)
	}
	return reply.GetImage() != nil, nil
}
