// Package seed writes cloud-init's NoCloud data source as a disk image: an ISO 9660
// file system with Rock Ridge names and the label "cidata".
//
// It owns the image's format. It leaves the contents of the files to package
// vmspec, and the image's path and owner to the caller.
package seed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
	"github.com/google/renameio/v2"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// Label is the volume's label, by which cloud-init finds the volume
// (cloud-init's documentation, "NoCloud").
const Label = "cidata"

// Write creates the image of s at path, readable by its owner alone, and replaces
// an existing file. The image appears whole or not at all; a process that is killed
// leaves a temporary file in the same folder, whose name begins with a dot. Images
// of equal seeds contain equal files, but differ in their dates.
func Write(ctx context.Context, path string, s vmspec.Seed) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("write seed %s: %w", path, err)
	}
	if err := write(path, s); err != nil {
		return fmt.Errorf("write seed %s: %w", path, err)
	}
	return nil
}

func write(path string, s vmspec.Seed) (err error) {
	folder := filepath.Dir(path)
	image, err := renameio.NewPendingFile(path,
		renameio.WithTempDir(folder), renameio.WithStaticPermissions(0o600))
	if err != nil {
		return fmt.Errorf("create image: %w", err)
	}
	defer func() { // has no effect once the image is renamed
		err = errors.Join(err, image.Cleanup())
	}()

	workspace, err := os.MkdirTemp(folder, ".seed-")
	if err != nil {
		return fmt.Errorf("create workspace: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(workspace)) }()

	if err := writeFiles(workspace, s); err != nil {
		return err
	}
	if err := writeImage(image.File, workspace); err != nil {
		return fmt.Errorf("create ISO 9660 file system: %w", err)
	}
	if err := image.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("rename image: %w", err)
	}
	return nil
}

// writeFiles writes the files of the image. cloud-init ignores a volume without
// user-data or meta-data, even if they would be empty.
func writeFiles(folder string, s vmspec.Seed) error {
	files := map[string]string{"user-data": s.UserData, "meta-data": s.MetaData}
	if s.NetworkConfig != "" {
		files["network-config"] = s.NetworkConfig
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			return err // the error names operation and path
		}
	}
	return nil
}

// writeImage creates the file system. It has no Joliet names: the library pads a
// file that ends at a block's end by an extra block, which overwrites the Joliet
// folder behind the last file. Linux prefers Rock Ridge.
func writeImage(image *os.File, workspace string) error {
	checked := &checkedFile{File: image}
	iso, err := iso9660.Create(file.New(checked, false), 0, 0, 0, workspace)
	if err != nil {
		return err
	}
	err = iso.Finalize(iso9660.FinalizeOptions{
		RockRidge:        true,
		VolumeIdentifier: fmt.Sprintf("%-32s", Label), // ECMA-119 requires spaces, not NUL
	})
	if checked.err != nil {
		return checked.err
	}
	return err
}

// checkedFile keeps the first error of a write: the library ignores some of them,
// so that a full disk would result in half an image.
type checkedFile struct {
	*os.File
	err error
}

func (f *checkedFile) WriteAt(b []byte, offset int64) (int, error) {
	n, err := f.File.WriteAt(b, offset)
	if err != nil && f.err == nil {
		f.err = err
	}
	return n, err
}
