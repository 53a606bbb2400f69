// Package image makes the controller's container image of its program, without docker: the same
// program gives the same digest.
//
// It owns what is in the image. Building the program and pushing the image are its callers'.
package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is an unprivileged user and group, as in deploy/kubernetes/controller.yaml. Kubernetes can check
// runAsNonRoot only for a number.
const user = "65532:65532"

// program is the controller's path in the image, which holds nothing else: it is linked statically,
// and what it has to trust, Kubernetes mounts.
const program = "/nodevirt-controller"

// Controller is an image of the program at file. Version is for people who look at it.
func Controller(file, version string) (v1.Image, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("image of the controller: %w", err)
	}
	archive, err := archived(text)
	if err != nil {
		return nil, fmt.Errorf("image of the controller: %w", err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("image of the controller: %w", err)
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.AppendLayers(img, layer); err != nil {
		return nil, fmt.Errorf("image of the controller: %w", err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("image of the controller: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", "amd64"
	config.Config = v1.Config{
		Entrypoint: []string{program},
		User:       user,
		Labels: map[string]string{
			"org.opencontainers.image.title":    "nodevirt-controller",
			"org.opencontainers.image.version":  version,
			"org.opencontainers.image.source":   "https://github.com/nodevirt/nodevirt",
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(img, config)
}

// archived is the layer's archive: no times, no owners but root.
func archived(text []byte) ([]byte, error) {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	h := &tar.Header{Name: path.Base(program), Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(text))}
	if err := t.WriteHeader(h); err != nil {
		return nil, err
	}
	if _, err := t.Write(text); err != nil {
		return nil, err
	}
	err := t.Close()
	return b.Bytes(), err
}
