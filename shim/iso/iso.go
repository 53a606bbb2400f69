// Package iso writes disk images with an ISO 9660 file system, whose names Linux reads
// by Rock Ridge and Windows by Joliet.
//
// It owns the image's format and bounds. It leaves to its callers which files an image
// has, and the image's path and owner.
package iso

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
	"github.com/google/renameio/v2"
)

// maxLabel is the length of a label.
const maxLabel = 32

// Write creates an image at path, readable by its owner alone, and replaces an existing
// file. The label has at most 32 ASCII characters; Windows sees the first 16. Fill adds the image's files. The image appears whole or not at all; a process
// that is killed leaves temporary files in the same folder, whose names begin with a
// dot. Images of equal files differ in their dates.
func Write(ctx context.Context, path, label string, fill func(*Files) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("write image %s: %w", path, err)
	}
	if err := write(path, label, fill); err != nil {
		return fmt.Errorf("write image %s: %w", path, err)
	}
	return nil
}

func write(path, label string, fill func(*Files) error) (err error) {
	folder := filepath.Dir(path)
	image, err := renameio.NewPendingFile(path,
		renameio.WithTempDir(folder), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return fmt.Errorf("create image: %w", err)
	}
	defer func() { // has no effect once the image is renamed
		err = errors.Join(err, image.Cleanup())
	}()

	private, err := os.MkdirTemp(folder, ".files-")
	if err != nil {
		return fmt.Errorf("create workspace: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(private)) }()
	workspace := filepath.Join(private, "root") // its mode is that of the root in the image
	if err := os.Mkdir(workspace, 0o755); err != nil {
		return fmt.Errorf("create workspace: %w", err)
	}
	root, err := os.OpenRoot(workspace)
	if err != nil {
		return fmt.Errorf("create workspace: %w", err)
	}
	defer root.Close()

	if err := fill(&Files{root: root}); err != nil {
		return err
	}
	if err := writeImage(image.File, workspace, label); err != nil {
		return fmt.Errorf("create ISO 9660 file system: %w", err)
	}
	if err := image.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("rename image: %w", err)
	}
	return nil
}

// writeImage creates the file system.
func writeImage(image *os.File, workspace, label string) error {
	sparse := &sparseFile{File: image}
	fs, err := iso9660.Create(file.New(sparse, false), 0, 0, 0, workspace)
	if err != nil {
		return err
	}
	err = fs.Finalize(iso9660.FinalizeOptions{
		RockRidge:        true,
		Joliet:           true,
		VolumeIdentifier: fmt.Sprintf("%-*s", maxLabel, label), // ECMA-119 requires spaces, not NUL
	})
	if sparse.err != nil {
		return sparse.err
	}
	if err != nil {
		return err
	}
	if err := image.Truncate((sparse.end + block - 1) / block * block); err != nil {
		return err
	}
	return fixJoliet(image)
}

// sparseFile is a new image while the library writes it.
//
// It keeps the first error of a write: the library ignores some of them, so that a full
// disk would result in half an image. It omits zeros, which a new file consists of: the
// library pads a file that ends at a block's end by another block, and would overwrite
// what it has already written there.
type sparseFile struct {
	*os.File
	end int64 // of the last write
	err error
}

func (f *sparseFile) WriteAt(b []byte, offset int64) (int, error) {
	f.end = max(f.end, offset+int64(len(b)))
	if allZeros(b) {
		return len(b), nil
	}
	n, err := f.File.WriteAt(b, offset)
	if err != nil && f.err == nil {
		f.err = err
	}
	return n, err
}

func allZeros(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
