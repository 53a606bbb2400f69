package run

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/cmd/nodevirt/internal/cli"
)

// pull makes sure that the image is on the node, and returns its id.
func (l *launch) pull(ctx context.Context, image string) (id string, err error) {
	spec := &runtimeapi.ImageSpec{Image: image}
	if l.options.pull != pullAlways {
		reply, err := l.node.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: spec})
		if err != nil {
			return "", fmt.Errorf("look for image %s: %w", image, said(ctx, err))
		}
		if id := reply.GetImage().GetId(); id != "" {
			return id, nil
		}
		if l.options.pull == pullNever {
			return "", fmt.Errorf("image %s is not on this node, and --pull never keeps it from being pulled", image)
		}
	}
	done := showPull(ctx, l.errOut, l.options.containerd, image)
	reply, err := l.node.Images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: spec})
	done()
	if err != nil {
		return "", fmt.Errorf("pull image %s: %w", image, said(ctx, err))
	}
	return reply.GetImageRef(), nil
}

// pullPoll is the pause between two checks of a pull's progress.
const pullPoll = 100 * time.Millisecond

// showPull shows the progress of an image pull on w, if w is a terminal, until the
// returned function is called. CRI does not report progress, but containerd does. Without
// containerd, showPull shows only that the pull goes on.
func showPull(ctx context.Context, w io.Writer, containerd, image string) (done func()) {
	if !cli.IsTerminal(w) {
		return func() {}
	}
	fmt.Fprintf(w, "Pulling %s\n", cli.Clean(image))
	ctx, cancel := context.WithCancel(ctx)
	var showing sync.WaitGroup
	showing.Go(func() { watchPull(ctx, w, containerd, image) })
	return func() { cancel(); showing.Wait() }
}

func watchPull(ctx context.Context, w io.Writer, address, image string) {
	spinDone := cli.Spin(w, "resolve")
	defer func() { spinDone() }()
	client, err := cli.DialContainerd(ctx, address)
	if err != nil {
		<-ctx.Done()
		return
	}
	defer func() { _ = client.Close() }()
	f, err := newFetch(client.ContentStore(), image)
	if err != nil {
		<-ctx.Done()
		return
	}
	var bar *cli.Bar
	for {
		fetched, total := f.progress(ctx)
		if bar == nil && total > 0 {
			spinDone()
			bar, spinDone = cli.NewBar(w, total, "fetch"), func() {}
		}
		switch {
		case bar != nil && fetched < total:
			bar.Set(fetched)
		case bar != nil:
			bar.Set(total)
			bar.Done()
			spinDone = cli.Spin(w, "unpack")
			<-ctx.Done()
			return
		}
		select {
		case <-ctx.Done():
			if bar != nil {
				bar.Done()
			}
			return
		case <-time.After(pullPoll):
		}
	}
}
