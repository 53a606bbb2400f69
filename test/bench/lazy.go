package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nodevirt/nodevirt/imageunpack/registrydisk"
	"github.com/nodevirt/nodevirt/test/bench/report"
	"github.com/nodevirt/nodevirt/test/node"
	"github.com/nodevirt/nodevirt/test/slowlink"
)

// Goals for the time to a guest's first answer: how many times as long as on a node that has the image.
const (
	lazyGoal      = 1.3
	lazyLargeGoal = 1.5
)

// largeSize is what the data of the largest disk of a lazy image take, in bytes.
const largeSize = 10 << 30

// farLink is the network between a node and a registry elsewhere.
func farLink() slowlink.Link {
	return slowlink.Link{RoundTrip: 20 * time.Millisecond, Rate: 200_000_000 / 8}
}

// lazyImage returns a bench of lazy images of size bytes. It measures the time from the registry to the guest's
// first answer on a node that has nothing of the image, against the next VM of it on the same node.
func lazyImage(size int64, rounds int, goal float64) func(*rig, context.Context) (report.Section, error) {
	return func(r *rig, ctx context.Context) (s report.Section, err error) {
		s.Title = fmt.Sprintf("A lazy image of %d MiB over %s, from the registry to the guest's first answer", size>>20, r.link)
		s.Notes = []string{"The baseline: the next VM of the image, once the node has fetched all of it in the background."}
		cold, warm := report.Series{Of: "lazy"}, report.Series{Of: "warm"}
		phases, rest := newPhases(), report.Series{Of: "rest"}
		if err := r.firstVM(ctx); err != nil {
			return s, err
		}
		for round := range rounds {
			name := fmt.Sprintf("lazy-%d", round)
			img, err := r.pushLazy(ctx, name, size)
			if err != nil {
				return s, err
			}
			first, err := r.phasesWhile(ctx, img.ref, name, func() error {
				begun := time.Now()
				if err := r.awaitFetched(ctx, img); err != nil {
					return err
				}
				rest.Add(milliseconds(time.Since(begun)))
				return nil
			})
			if err != nil {
				return s, err
			}
			next, err := r.phasesFrom(ctx, img.ref, name+"-next")
			if err != nil {
				return s, err
			}
			cold.Add(sum(first))
			warm.Add(sum(next))
			for i, t := range first {
				phases[i].Add(t)
			}
		}
		whole := value("to the first answer", cold)
		whole.Kind, whole.Baseline, whole.Goal = report.Ratio, warm, goal
		s.Rows = []report.Row{whole}
		for i, call := range []string{"the pull", "RunPodSandbox", "CreateContainer", "StartContainer", "the boot"} {
			s.Rows = append(s.Rows, value("of it "+call, phases[i]))
		}
		s.Rows = append(s.Rows, value("then to the whole image", rest))
		return s, nil
	}
}

// firstVM runs the node's first VM, for which libvirtd asks QEMU what it can: that is no cost of an image.
func (r *rig) firstVM(ctx context.Context) error {
	image, _, err := r.tiny(ctx)
	if err != nil {
		return err
	}
	_, err = r.phasesFrom(ctx, image, "first")
	return err
}

// lazyLayer is the layer of an image that the node fetches as it is read.
type lazyLayer struct {
	ref, digest string
	size        int64
}

// pushLazy makes a lazy image that the node has never seen.
func (r *rig) pushLazy(ctx context.Context, name string, size int64) (l lazyLayer, err error) {
	path, err := r.largeGuest(ctx, size)
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, os.Remove(path)) }()
	disk, err := registrydisk.Check(path, 1<<40)
	if err != nil {
		return l, err
	}
	img, err := disk.Image(ctx, registrydisk.Options{Architecture: "amd64", Lazy: true})
	if err != nil {
		return l, err
	}
	m, err := img.Manifest()
	if err != nil {
		return l, fmt.Errorf("read the manifest of %s: %w", name, err)
	}
	last := m.Layers[len(m.Layers)-1]
	l.digest, l.size = last.Digest.String(), last.Size
	l.ref, err = r.Push(ctx, name+":1", img)
	return l, err
}

// awaitFetched waits until the node has all of a layer. It gives up when nothing of it comes for a minute.
func (r *rig) awaitFetched(ctx context.Context, l lazyLayer) error {
	seen, since := int64(-1), time.Now()
	for {
		n, err := node.Fetched(r.Node, l.digest)
		if err != nil || n >= l.size {
			return err
		}
		if n > seen {
			seen, since = n, time.Now()
		}
		if time.Since(since) > time.Minute {
			return fmt.Errorf("image %s: the node has stopped at %d of %d bytes", l.ref, n, l.size)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func sum(all []float64) (total float64) {
	for _, x := range all {
		total += x
	}
	return total
}
