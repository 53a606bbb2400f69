package image

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// WriteArchive writes an archive of an OCI layout, whose only entry has the name that containerd reads. The same image
// and name give the same file.
func WriteArchive(file string, as name.Reference, content mutate.Appendable) (err error) {
	dir, err := os.MkdirTemp(filepath.Dir(file), ".nodevirt-image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	named := mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add: content,
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
		return archiveFile(w, folder, name)
	})
	return errors.Join(err, w.Close())
}

func archiveFile(w *tar.Writer, folder fs.FS, name string) error {
	f, err := folder.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: info.Size()}); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}
