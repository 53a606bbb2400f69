package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/bench/report"
)

// diskRounds are of comparisons that write a disk.
func (r *rig) diskRounds() int { return max(3, r.Rounds/3) }

// disk compares a create in mode raw with qemu-img alone, and measures one in mode file.
func (r *rig) disk(ctx context.Context) (s report.Section, err error) {
	s.Title = fmt.Sprintf("From a pulled image to a disk: CreateContainer, %d MiB of data, on %s", contentSize>>20, r.fileSystem())
	s.Notes = []string{"qemu-img alone: convert -W -m 16 of the same file, its fastest flags here."}
	raw, err := r.diskPod(ctx, "raw", vmspec.ModeRaw)
	if err != nil {
		return s, err
	}
	file, err := r.diskPod(ctx, "file", vmspec.ModeFile)
	if err != nil {
		return s, err
	}
	for _, f := range formats() {
		path, err := r.contentDisk(ctx, f, virtualSize)
		if err != nil {
			return s, err
		}
		image, err := r.pushDisk(ctx, "content-"+f.name+":1", path)
		if err != nil {
			return s, err
		}
		times, err := turns(ctx, r.diskRounds(), r.convertSide(path), raw.createSide("raw", image), file.createSide("file", image))
		if err != nil {
			return s, err
		}
		s.Rows = append(s.Rows,
			report.Row{Name: "raw, " + f.name, Unit: "ms", Kind: report.Ratio, Goal: 1.05, Baseline: times[0], Measured: times[1]},
			report.Row{Name: "file, " + f.name, Unit: "ms", Kind: report.Value, Goal: 50, Measured: times[2]})
		if err := os.Remove(path); err != nil {
			return s, err
		}
	}
	return s, nil
}

// clone is disk on a file system with reflinks: the first VM of an image, and the second.
func (r *rig) clone(ctx context.Context) (s report.Section, err error) {
	s.Title = fmt.Sprintf("From a pulled image to a disk: mode raw, %d MiB of data, on xfs with reflinks", contentSize>>20)
	p, err := r.diskPod(ctx, "clone", vmspec.ModeRaw)
	if err != nil {
		return s, err
	}
	for _, f := range formats() {
		path, err := r.contentDisk(ctx, f, virtualSize)
		if err != nil {
			return s, err
		}
		alone, first := report.Series{Of: "qemu-img alone"}, report.Series{Of: "first VM"}
		second := report.Series{Of: "second VM"}
		for round := range r.diskRounds() + 1 {
			took, err := r.cloneRound(ctx, p, path, fmt.Sprintf("clone-%s:%d", f.name, round), round%2 == 0)
			if err != nil {
				return s, err
			}
			if round > 0 { // the first fills caches
				alone.Add(took[0])
				first.Add(took[1])
				second.Add(took[2])
			}
		}
		s.Rows = append(s.Rows,
			report.Row{Name: "first VM, " + f.name, Unit: "ms", Kind: report.Ratio, Goal: 1.05, Baseline: alone, Measured: first},
			report.Row{Name: "second VM, " + f.name, Unit: "ms", Kind: report.Value, Goal: 50, Measured: second})
		if err := os.Remove(path); err != nil {
			return s, err
		}
	}
	return s, nil
}

// cloneRound takes the times, in ms, of qemu-img alone and of two VMs of an image that is new to the
// node but for its layer.
func (r *rig) cloneRound(ctx context.Context, p *pod, path, name string, aloneFirst bool) (took [3]float64, err error) {
	image, err := r.pushVariant(ctx, name, path)
	if err != nil {
		return took, err
	}
	vm := p.createSide("", image)
	order := []int{0, 1, 2}
	if !aloneFirst {
		order = []int{1, 2, 0}
	}
	for _, i := range order {
		do := vm
		if i == 0 {
			do = r.convertSide(path)
		}
		if took[i], err = do.turn(ctx); err != nil {
			return took, err
		}
	}
	_, err = r.images.RemoveImage(ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: image}})
	return took, errors.Join(err, r.awaitBases(ctx, 0))
}

// awaitBases waits until there are as many expanded disks as wanted.
func (r *rig) awaitBases(ctx context.Context, want int) error {
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		list, err := os.ReadDir(filepath.Join(r.Dir(), "nodevirt/expanded"))
		if err != nil || len(list) == want {
			return err
		}
		if time.Since(begun) > 2*time.Minute || ctx.Err() != nil {
			return fmt.Errorf("%d expanded disks are left; want %d", len(list), want)
		}
	}
}

// convertSide is qemu-img alone, with more flags.
func (r *rig) convertSide(path string, flags ...string) side {
	to := filepath.Join(r.Dir(), "alone.raw")
	var next *grouped
	return side{
		of: "qemu-img alone",
		prepare: func(ctx context.Context) (err error) {
			args := append([]string{"convert", "-f", "qcow2", "-O", "raw", "-W", "-m", "16"}, flags...)
			next, err = r.prepare(ctx, place{name: "qemu-img"}, "qemu-img", append(args, path, to)...)
			return err
		},
		do:   func(context.Context) error { return next.run() },
		tidy: func(context.Context) error { return os.Remove(to) },
	}
}

// createSide creates a VM container, and removes it.
func (p *pod) createSide(of, image string) side {
	var id string
	return side{
		of: of,
		do: func(ctx context.Context) (err error) {
			id, err = p.create(ctx, "guest", image)
			return err
		},
		tidy: func(ctx context.Context) error {
			_, err := p.by.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: id})
			return err
		},
	}
}

// diskPod runs a pod whose VMs' disks have a mode.
func (r *rig) diskPod(ctx context.Context, name string, mode vmspec.Mode) (*pod, error) {
	config, err := r.podConfig(name)
	if err != nil {
		return nil, err
	}
	config.Annotations = map[string]string{vmspec.AnnotationDiskMode: string(mode)}
	return runPod(ctx, r.shim, config, "vm")
}
