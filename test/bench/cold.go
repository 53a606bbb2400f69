package bench

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/test/bench/report"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/slowlink"
)

// coldSize is what the data of a disk take that a node does not have yet, in bytes.
const coldSize = 1 << 30

// cold measures the time from an image in the registry to a guest that runs, by phases, and the
// least time that fetching the bytes takes.
func (r *rig) cold(ctx context.Context) (s report.Section, err error) {
	s.Title = fmt.Sprintf("A node that has nothing of an image of %d MiB, from the registry over %s to a running guest",
		coldSize>>20, r.link)
	s.Notes = []string{
		"The floor: a Go program gets the same bytes by HTTP over such a link, and hashes them. Boot is the",
		"guest's own, under the node's accelerator, until it answers HTTP.",
	}
	phases := newPhases()
	floor := report.Series{Of: "floor"}
	for round := range 3 {
		path, err := r.largeGuest(ctx, coldSize)
		if err != nil {
			return s, err
		}
		took, err := stream(ctx, path, r.link)
		if err != nil {
			return s, err
		}
		floor.Add(took)
		times, err := r.coldRound(ctx, path, fmt.Sprintf("cold-%d", round))
		if err != nil {
			return s, err
		}
		for i, t := range times {
			phases[i].Add(t)
		}
	}
	for i, p := range phases {
		row := value(p.Of, p)
		if i == 0 {
			row.Kind, row.Baseline = report.Ratio, floor
		}
		s.Rows = append(s.Rows, row)
	}
	return s, nil
}

// coldRound takes the times of the phases, in ms.
func (r *rig) coldRound(ctx context.Context, path, name string) (times []float64, err error) {
	img, err := images.RegistryDisk(path, images.DiskOptions{})
	if err == nil {
		img, err = images.Extend(img, v1.Config{Labels: map[string]string{"variant": name}})
	}
	if err != nil {
		return nil, err
	}
	ref, err := r.Push(ctx, name+":1", img)
	if err != nil {
		return nil, err
	}
	times, err = r.phasesFrom(ctx, ref, name)
	return times, errors.Join(err, os.Remove(path))
}

// newPhases are the phases whose times phasesFrom takes, in their order.
func newPhases() []report.Series {
	return []report.Series{{Of: "pull"}, {Of: "pod"}, {Of: "create"}, {Of: "start"}, {Of: "boot"}}
}

// phasesFrom takes the times of the phases from the pull of an image to its guest's answer, in ms.
func (r *rig) phasesFrom(ctx context.Context, ref, name string) (times []float64, err error) {
	return r.phasesWhile(ctx, ref, name, func() error { return nil })
}

// phasesWhile does the same, and calls while before it ends the guest. What made the image, or fetched it for
// the pod before, may have left gigabytes to write, which this pod's few would wait for: they are written first.
func (r *rig) phasesWhile(ctx context.Context, ref, name string, while func() error) (times []float64, err error) {
	unix.Sync()
	var p *pod
	var id string
	for _, do := range []func() error{
		func() error { return r.pull(ctx, ref) },
		func() error { p, err = r.runPod(ctx, r.shim, name, "vm"); return err },
		func() error { id, err = p.create(ctx, "guest", ref); return err },
		func() error { return p.start(ctx, id) },
		func() error { return r.awaitAnswer(ctx, p) },
	} {
		begun := time.Now()
		if err := do(); err != nil {
			return nil, err
		}
		times = append(times, milliseconds(time.Since(begun)))
	}
	return times, errors.Join(while(), p.end(ctx, id), p.remove(ctx))
}

// largeGuest is the tiny guest's disk with size bytes of data behind its partition that nothing
// compresses, new ones each time.
func (r *rig) largeGuest(ctx context.Context, size int64) (path string, err error) {
	tiny, err := guest.Tiny(ctx, r.GuestOptions())
	if err != nil {
		return "", err
	}
	raw := filepath.Join(r.Dir(), "large.raw")
	if err := qemuImg(ctx, "convert", "-f", "qcow2", "-O", "raw", tiny, raw); err != nil {
		return "", err
	}
	f, err := os.OpenFile(raw, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if _, err := io.CopyN(f, rand.Reader, size); err != nil {
		return "", fmt.Errorf("write a large disk: %w", err)
	}
	path = filepath.Join(r.Dir(), "large.qcow2")
	if err := qemuImg(ctx, "convert", "-f", "raw", "-O", "qcow2", "-W", "-m", "16", raw, path); err != nil {
		return "", err
	}
	return path, errors.Join(f.Close(), os.Remove(raw))
}

// stream gets a file by HTTP over a link and hashes it, and returns the time in ms.
func stream(ctx context.Context, path string, link slowlink.Link) (ms float64, err error) {
	server := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(path))))
	defer server.Close()
	url := server.URL
	if link != (slowlink.Link{}) {
		near, failed := net.Listen("tcp", "127.0.0.1:0")
		if failed != nil {
			return 0, fmt.Errorf("offer a disk: %w", failed)
		}
		linked, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			ended <- link.Serve(linked, near, func(ctx context.Context) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
			})
		}()
		defer func() {
			cancel()
			err = errors.Join(err, <-ended)
		}()
		url = "http://" + near.Addr().String()
	}
	begun := time.Now()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/"+filepath.Base(path), nil)
	if err != nil {
		return 0, err
	}
	reply, err := server.Client().Do(request)
	if err != nil {
		return 0, fmt.Errorf("get a disk: %w", err)
	}
	defer reply.Body.Close()
	if _, err := io.Copy(sha256.New(), reply.Body); err != nil {
		return 0, fmt.Errorf("get a disk: %w", err)
	}
	return milliseconds(time.Since(begun)), nil
}
