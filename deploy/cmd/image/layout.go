package main

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// write writes an archive of an OCI layout, whose only entry has the name that containerd reads.
func (i index) write(file string, as name.Reference) (err error) {
	dir, err := os.MkdirTemp("", "nodevirt-image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	named := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add: i.ImageIndex,
		Descriptor: v1.Descriptor{Annotations: map[string]string{
			"io.containerd.image.name":          as.Name(),
			"org.opencontainers.image.ref.name": as.Identifier(),
		}},
	})
	if _, err := layout.Write(dir, named); err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(archive(f, os.DirFS(dir)), f.Close())
}

// archive writes the files of a folder. The archive has no times: it depends on the content alone.
func archive(to io.Writer, folder fs.FS) error {
	w := tar.NewWriter(to)
	err := fs.WalkDir(folder, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(folder, name)
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))})
		}
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	})
	return errors.Join(err, w.Close())
}
