package push

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/nodevirt/nodevirt/controller/export/server"
	"github.com/nodevirt/nodevirt/imageunpack/qcow2"
	"github.com/nodevirt/nodevirt/imageunpack/registrydisk/layout"
)

// Flag is the argument by which nodevirt-controller pushes a disk; the folder follows.
const Flag = "-export-push"

// owner is the user and group of the disk in the image: QEMU's in KubeVirt's images.
const owner = 107

// by is what the image's history says.
const by = "nodevirt-controller " + Flag

// CheckImage checks a reference: REGISTRY/NAME:TAG. Which registry is meant must not depend on who
// reads it.
func CheckImage(ref string) error {
	if strings.Contains(ref, "://") {
		return errors.New("a URL is not an image reference")
	}
	_, err := name.NewTag(ref, name.StrictValidation)
	return err
}

// Run pushes the disk that the config below dir names, and writes the result to a file.
func Run(ctx context.Context, dir, file string, log *slog.Logger) error {
	result, err := push(ctx, dir, log)
	if err != nil {
		result = Result{Error: err.Error()}
	}
	return errors.Join(err, result.write(file))
}

func push(ctx context.Context, dir string, log *slog.Logger) (Result, error) {
	config, err := server.ReadConfig(dir)
	if err != nil {
		return Result{}, err
	}
	if config.Push == nil {
		return Result{}, errors.New("the export's config names no image")
	}
	disk, err := open(config)
	if err != nil {
		return Result{}, err
	}
	defer disk.Close()
	to, err := registryOf(dir, config.Push.Image)
	if err != nil {
		return Result{}, err
	}
	img, err := imageOf(ctx, disk, config.Push.Architecture, log)
	if err != nil {
		return Result{}, err
	}
	return to.write(ctx, img, log)
}

// open opens the disk of the volume that is pushed.
func open(c server.Config) (*os.File, error) {
	i := slices.IndexFunc(c.Volumes, func(v server.Volume) bool { return v.Name == c.Push.Volume })
	if i < 0 {
		return nil, fmt.Errorf("the export has no volume %s", c.Push.Volume)
	}
	return server.OpenDisk(c.Volumes[i])
}

// imageOf returns the image of a raw disk.
func imageOf(ctx context.Context, raw *os.File, architecture string, log *slog.Logger) (v1.Image, error) {
	size, err := raw.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("measure the disk: %w", err)
	}
	steps := &steps{log: log, doing: "looking for data", total: size}
	disk, err := qcow2.Scan(ctx, raw, size, steps.add)
	if err != nil {
		return nil, err
	}
	log.Info("computing the digest", "bytes", disk.Length())
	layer, err := layout.Plain(func() io.ReadCloser {
		r, w := io.Pipe()
		go func() {
			err := layout.Write(w, layout.File{Path: layout.QCOW2, Size: disk.Length(), Owner: owner}, func(w io.Writer) error {
				return disk.Write(ctx, w)
			})
			_ = w.CloseWithError(err) // the error reaches the reader
		}()
		return r
	})
	if err != nil {
		return nil, err
	}
	if architecture == "" {
		architecture = runtime.GOARCH
	}
	img, err := layout.Image(mutate.Addendum{Layer: layer}, architecture, by)
	if err != nil {
		return nil, fmt.Errorf("build the image: %w", err)
	}
	return img, nil
}

// registry is where an image is pushed to.
type registry struct {
	tag     name.Tag
	options []remote.Option
}

func registryOf(dir, image string) (registry, error) {
	tag, err := name.NewTag(image, name.StrictValidation)
	if err != nil {
		return registry{}, fmt.Errorf("image %q: %w", image, err)
	}
	keys, err := readKeychain(dir)
	if err != nil {
		return registry{}, err
	}
	t, err := transport(dir)
	if err != nil {
		return registry{}, err
	}
	return registry{tag, []remote.Option{remote.WithAuthFromKeychain(keys), remote.WithTransport(t)}}, nil
}

func (r registry) write(ctx context.Context, img v1.Image, log *slog.Logger) (Result, error) {
	digest, err := img.Digest()
	if err != nil {
		return Result{}, err
	}
	manifest, err := img.Manifest()
	if err != nil {
		return Result{}, err
	}
	result := Result{Digest: digest.String(), Size: manifest.Layers[0].Size}
	log.Info("pushing", "image", r.tag.String(), "digest", result.Digest, "bytes", result.Size)
	steps := &steps{log: log, doing: "pushing", total: result.Size}
	updates := make(chan v1.Update, 16)
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		for u := range updates { // remote closes it
			steps.set(u.Complete)
		}
	}()
	err = remote.Write(r.tag, img, append(r.options, remote.WithContext(ctx), remote.WithProgress(updates))...)
	<-seen
	if err != nil {
		return Result{}, fmt.Errorf("push %s: %w", r.tag, err)
	}
	log.Info("pushed", "image", r.tag.String(), "digest", result.Digest)
	return result, nil
}
