package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"syscall"

	"github.com/nodevirt/nodevirt/imageunpack/qcow2"
	"github.com/nodevirt/nodevirt/shim/record"
)

// Backups are the files of backups in the folders of volumes. The volumes' other users may write
// there, too. A file has another name until its backup is complete.
type Backups struct{}

// partialBackup ends the name of a file whose backup is not complete.
const partialBackup = ".partial"

// Create creates the folder and the files of a backup, each an empty qcow2 file of its disk's size.
// The folder must be new. After an error, [Backups.Remove] removes what is there.
func (Backups) Create(b record.Backup) ([]*os.File, error) {
	var files []*os.File
	err := inFolder(b.Folder, func(root *os.Root) error {
		if err := root.MkdirAll(path.Dir(b.Dir), 0o755); err != nil {
			return err
		}
		if err := root.Mkdir(b.Dir, 0o755); err != nil {
			return err
		}
		for _, d := range b.Disks {
			f, err := createBackup(root, path.Join(b.Dir, d.File), d.Size)
			if err != nil {
				return err
			}
			files = append(files, f)
		}
		return nil
	})
	if err != nil {
		for _, f := range files {
			_ = f.Close()
		}
		return nil, fmt.Errorf("%w: create the files of the backup: %w", ErrVolume, err)
	}
	return files, nil
}

// createBackup creates the file of one disk.
func createBackup(root *os.Root, name string, size int64) (*os.File, error) {
	f, err := root.OpenFile(name+partialBackup, os.O_RDWR|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	n := qcow2.New{Size: size}
	if err := errors.Join(f.Truncate(n.Length()), n.Fill(f)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Complete gives the files of a complete backup their names, which a crash of the node does not
// undo. It may be repeated.
func (Backups) Complete(b record.Backup) error {
	err := inFolder(b.Folder, func(root *os.Root) error {
		for _, d := range b.Disks {
			if err := complete(root, path.Join(b.Dir, d.File)); err != nil {
				return err
			}
		}
		for dir := b.Dir; ; dir = path.Dir(dir) {
			if err := flush(root, dir); err != nil || dir == "." {
				return err
			}
		}
	})
	if err != nil {
		return fmt.Errorf("%w: complete the files of the backup: %w", ErrVolume, err)
	}
	return nil
}

// complete renames a file once all of it is on the volume.
func complete(root *os.Root, name string) error {
	err := flush(root, name+partialBackup)
	if err == nil {
		return root.Rename(name+partialBackup, name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return flush(root, name) // renamed before
	}
	return err
}

// flush writes what the node has of a file or folder to the volume.
func flush(root *os.Root, name string) error {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Remove removes the files of a backup that failed, and their folders if nothing else is there. Files
// that are missing are no error.
func (Backups) Remove(b record.Backup) error {
	err := inFolder(b.Folder, func(root *os.Root) error {
		for _, d := range b.Disks {
			names := []string{d.File + partialBackup}
			if b.Renaming { // the folder is the backup's
				names = append(names, d.File)
			}
			for _, name := range names {
				if err := root.Remove(path.Join(b.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
		}
		for dir := b.Dir; dir != "." && dir != "/" && root.Remove(dir) == nil; dir = path.Dir(dir) { // a folder of other backups stays
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: remove an incomplete backup: %w", ErrVolume, err)
	}
	return nil
}
