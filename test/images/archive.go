package images

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Extract writes the files of a tar archive to a folder, and returns them for a layer, as ADD of a
// Dockerfile does.
func Extract(archive, folder string) ([]File, error) {
	f, err := os.Open(archive)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var all []File
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("extract %s: %w", archive, err)
		}
		to, err := os.Create(filepath.Join(folder, filepath.Base(h.Name)))
		if err != nil {
			return nil, err
		}
		_, err = io.Copy(to, r)
		if err := errors.Join(err, to.Close()); err != nil {
			return nil, fmt.Errorf("extract %s of %s: %w", h.Name, archive, err)
		}
		all = append(all, File{Name: h.Name, From: to.Name()})
	}
}
