// Package bundle makes the image that holds all software of a node: Debian's packages of a lock file, and
// nodevirt's programs. The same lock file and programs give the same digest.
//
// It owns which packages and files are in the image, the lock file, and the bill of materials. It runs no
// maintainer script: the few results that matter are in files.go. Building nodevirt's programs is its
// caller's, and so is installing the image on a node.
package bundle

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Options are what an image is made of.
type Options struct {
	Lists        Lists
	Architecture string // Go's name, which is Debian's too
	Programs     string // the folder with nodevirt's linked programs
	Version      string // of nodevirt, for people who look at the image
	Cache        string // the folder that keeps downloaded packages
	Scratch      string // a folder for layers, which have to stay as long as the image is in use
	Archives     Archives
}

// Bundle is an image and its bill of materials.
type Bundle struct {
	Image v1.Image
	BOM   *cyclonedx.BOM
}

// Build downloads the packages that the cache does not have, and makes the image. It fails if a file of the image needs
// a library or an interpreter that is not in the image.
func Build(ctx context.Context, o Options) (_ *Bundle, err error) {
	packages, err := o.Lists.Lock(o.Architecture)
	if err != nil {
		return nil, err
	}
	files, err := download(ctx, o.Archives, o.Cache, packages)
	if err != nil {
		return nil, err
	}
	contents, err := os.CreateTemp(o.Scratch, "contents-")
	if err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	defer func() { err = errors.Join(err, contents.Close(), os.Remove(contents.Name())) }()
	t := newTree(contents)
	if err := t.fill(ctx, o, packages, files); err != nil {
		return nil, err
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	img, err := t.image(o)
	if err != nil {
		return nil, err
	}
	bom, err := t.bom(o, packages)
	if err != nil {
		return nil, err
	}
	return &Bundle{Image: img, BOM: bom}, nil
}
