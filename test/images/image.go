package images

import (
	"fmt"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// FromFiles is an OCI image of layers; one without layers is as good as any.
func FromFiles(config v1.Config, layers ...Layer) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	return Extend(img, config, layers...)
}

// FromProgram is an image whose containers run a program of this machine. It is linked statically.
func FromProgram(file, user string) (v1.Image, error) {
	name := filepath.Base(file)
	return FromFiles(v1.Config{Entrypoint: []string{"/" + name}, User: user}, Layer{Files: []File{{Name: name, Mode: 0o755, From: file}}})
}

// Extend is an image with another configuration and with further layers above its own.
func Extend(img v1.Image, config v1.Config, layers ...Layer) (v1.Image, error) {
	built := make([]v1.Layer, 0, len(layers))
	for _, l := range layers {
		b, err := l.build()
		if err != nil {
			return nil, err
		}
		built = append(built, b)
	}
	img, err := mutate.AppendLayers(img, built...)
	if err != nil {
		return nil, fmt.Errorf("make an image: %w", err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("make an image: %w", err)
	}
	file = file.DeepCopy()
	file.Architecture, file.OS, file.Config = "amd64", "linux", config
	if img, err = mutate.ConfigFile(img, file); err != nil {
		return nil, fmt.Errorf("make an image: %w", err)
	}
	return img, nil
}

// DiskOptions say how a registry disk's image is laid out.
type DiskOptions struct {
	// AsFolder puts the disk in a folder /disk, as "ADD fedora.qcow2 /disk/" does; else /disk is
	// the disk itself, as "ADD fedora.qcow2 /disk" makes it.
	AsFolder bool
	// Name is the disk's name in the folder; that of the source if empty.
	Name string
	// Compressed makes gzip layers.
	Compressed bool
	// Below and Above are further layers, one for each element.
	Below, Above [][]File
}

// RegistryDisk is a FROM scratch image with the disk at path. The file must not change while the
// image is in use.
func RegistryDisk(path string, o DiskOptions) (v1.Image, error) {
	files := []File{{Name: "disk", From: path}}
	if o.AsFolder {
		name := o.Name
		if name == "" {
			name = filepath.Base(path)
		}
		files = []File{{Name: "disk/"}, {Name: "disk/" + name, From: path}}
	}
	all := append(append(append([][]File{}, o.Below...), files), o.Above...)
	layers := make([]Layer, len(all))
	for i, f := range all {
		layers[i] = Layer{Files: f, Compressed: o.Compressed}
	}
	img, err := FromFiles(v1.Config{}, layers...)
	if err != nil {
		return nil, fmt.Errorf("registry disk of %s: %w", path, err)
	}
	return img, nil
}
