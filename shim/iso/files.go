package iso

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"unicode"
)

// The bounds of an image. Names beyond MaxName do not fit a directory record with
// their Joliet or Rock Ridge form, and ISO 9660 has no deeper folders.
const (
	MaxFiles = 1000
	MaxBytes = 4 << 20 // of all files together
	MaxName  = 110     // bytes of a file's or folder's name
	MaxDepth = 7       // folders above a file
)

// ErrBounds says that files do not fit an image.
var ErrBounds = errors.New("not possible on an ISO 9660 disk")

// Files are those of an image that is being written.
type Files struct {
	root  *os.Root
	count int
	bytes int64
}

// Add adds a file, and the folders above it. The path is relative, with slashes.
// Problems with the path, the number of files and their size are [ErrBounds].
func (f *Files) Add(name string, mode fs.FileMode, content io.Reader) error {
	if err := checkPath(name); err != nil {
		return err
	}
	if f.count++; f.count > MaxFiles {
		return fmt.Errorf("%w: more than %d files", ErrBounds, MaxFiles)
	}
	if err := f.root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err // the error names operation and path
	}
	to, err := f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	n, err := io.Copy(to, io.LimitReader(content, MaxBytes-f.bytes+1))
	if f.bytes += n; err == nil && f.bytes > MaxBytes {
		err = fmt.Errorf("%w: more than %d bytes", ErrBounds, MaxBytes)
	}
	return errors.Join(err, to.Close())
}

// checkPath returns why no image can have a file of this path.
func checkPath(name string) error {
	if !fs.ValidPath(name) || name == "." {
		return fmt.Errorf("%w: the path %q", ErrBounds, clip(name))
	}
	parts := strings.Split(name, "/")
	if len(parts) > MaxDepth+1 {
		return fmt.Errorf("%w: %q is in more than %d folders", ErrBounds, clip(name), MaxDepth)
	}
	for _, part := range parts {
		switch {
		case len(part) > MaxName:
			return fmt.Errorf("%w: the name %q has more than %d bytes", ErrBounds, clip(part), MaxName)
		case strings.ContainsFunc(part, unfit):
			return fmt.Errorf("%w: the name %q has other characters than Joliet", ErrBounds, part)
		}
	}
	return nil
}

// unfit reports whether Joliet, which is UCS-2, does not have a character in names.
func unfit(r rune) bool {
	return r > 0xffff || unicode.IsControl(r) || strings.ContainsRune(`*:;?\`, r)
}

func clip(name string) string { return name[:min(len(name), 2*MaxName)] }
