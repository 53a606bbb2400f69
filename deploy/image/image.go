// Package image makes the container images of the controller and of the installer of their programs,
// without docker: the same programs give the same digest.
//
// It owns what is in the images. Building the programs and pushing the images are its callers'.
package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// unprivileged is a user and group, as in deploy/kubernetes/controller.yaml. Kubernetes can check
	// runAsNonRoot only for a number.
	unprivileged = "65532:65532"
	// root is the installer's user, as in deploy/installer/daemonset.yaml.
	root = "0:0"

	// programsFolder is where the installer finds the programs of a node.
	programsFolder = "programs"
)

// nodePrograms are the programs that the installer places on a node. They contain the units and the
// settings that "nodevirt node install" writes.
func nodePrograms() []string {
	return []string{"nodevirt", "nodevirt-qemu", "nodevirt-shim", "nodevirt-view"}
}

// Controller is an image of the controller's program. Version is for people who look at it.
// The image holds nothing else: the program is linked statically, and what it has to trust, Kubernetes
// mounts.
func Controller(program, version string) (v1.Image, error) {
	return controller(program, "amd64", version)
}

// Controllers is an index of images of the controller's programs, by their architectures in Go's names.
func Controllers(programs map[string]string, version string) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range slices.Sorted(maps.Keys(programs)) {
		img, err := controller(programs[arch], arch, version)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	return index, nil
}

func controller(program, arch, version string) (v1.Image, error) {
	return build("nodevirt-controller", unprivileged, arch, version, file{"nodevirt-controller", program})
}

// Installer is an image of the installer's program, which is linked statically, and of the
// programs of a node, which are in the folder dir.
func Installer(program, dir, version string) (v1.Image, error) {
	const name = "nodevirt-installer"
	files := []file{{name, program}}
	for _, p := range nodePrograms() {
		files = append(files, file{path.Join(programsFolder, p), filepath.Join(dir, p)})
	}
	return build(name, root, "amd64", version, files...)
}

// file is a program: its path in an image, and where it is read.
type file struct{ path, source string }

// build makes an image of files whose program and title are name.
func build(name, user, arch, version string, files ...file) (v1.Image, error) {
	archive, err := archived(files)
	if err != nil {
		return nil, fmt.Errorf("image of %s: %w", name, err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("image of %s: %w", name, err)
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.AppendLayers(img, layer); err != nil {
		return nil, fmt.Errorf("image of %s: %w", name, err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("image of %s: %w", name, err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Config = v1.Config{
		Entrypoint: []string{"/" + name},
		User:       user,
		Labels: map[string]string{
			"org.opencontainers.image.title":    name,
			"org.opencontainers.image.version":  version,
			"org.opencontainers.image.source":   "https://github.com/nodevirt/nodevirt",
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(img, config)
}

// archived is the layer's archive: no times, no owners but root.
func archived(files []file) ([]byte, error) {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	folders := map[string]bool{".": true}
	for _, f := range files {
		if dir := path.Dir(f.path); !folders[dir] {
			folders[dir] = true
			if err := t.WriteHeader(&tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
				return nil, err
			}
		}
		text, err := os.ReadFile(f.source)
		if err != nil {
			return nil, err
		}
		if err := t.WriteHeader(&tar.Header{Name: f.path, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(text))}); err != nil {
			return nil, err
		}
		if _, err := t.Write(text); err != nil {
			return nil, err
		}
	}
	err := t.Close()
	return b.Bytes(), err
}
