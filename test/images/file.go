package images

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// File is an entry of a layer. Its name, type and link go into the archive as they are, so that
// tests can make what no sane builder makes.
type File struct {
	Name     string // without a leading slash; a folder's ends with one
	Type     byte   // a tar.Type…; if zero, a folder, a link or a file, as the other fields say
	Mode     int64  // permissions; if zero, 0755 for a folder and 0644 for the rest
	UID, GID int
	Link     string // target of a link
	Data     []byte // content
	From     string // path of a file with the content, instead of Data; it must not change
}

// header is the file's header, and the opener of its content.
func (f File) header() (*tar.Header, error) {
	h := &tar.Header{
		Name: f.Name, Typeflag: f.Type, Mode: f.Mode, Uid: f.UID, Gid: f.GID, Linkname: f.Link,
		Size: int64(len(f.Data)),
	}
	if h.Typeflag == 0 {
		switch {
		case strings.HasSuffix(f.Name, "/"):
			h.Typeflag = tar.TypeDir
		case f.Link != "":
			h.Typeflag = tar.TypeSymlink
		default:
			h.Typeflag = tar.TypeReg
		}
	}
	if h.Mode == 0 {
		h.Mode = 0o644
		if h.Typeflag == tar.TypeDir {
			h.Mode = 0o755
		}
	}
	if f.From != "" {
		info, err := os.Stat(f.From)
		if err != nil {
			return nil, err
		}
		h.Size = info.Size()
	}
	return h, nil
}

// open opens the content.
func (f File) open() (io.ReadCloser, error) {
	if f.From != "" {
		return os.Open(f.From)
	}
	return io.NopCloser(strings.NewReader(string(f.Data))), nil
}

// writeTar writes an archive of files.
func writeTar(w io.Writer, files []File) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		if err := addFile(t, f); err != nil {
			return fmt.Errorf("archive %s: %w", f.Name, err)
		}
	}
	return t.Close()
}

func addFile(t *tar.Writer, f File) error {
	h, err := f.header()
	if err != nil {
		return err
	}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	content, err := f.open()
	if err != nil {
		return err
	}
	_, err = io.Copy(t, content)
	return errors.Join(err, content.Close())
}
