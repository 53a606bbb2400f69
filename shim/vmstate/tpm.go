package vmstate

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// TPMState is the state of a TPM in a volume. A process that has the folder's descriptor needs no right to
// enter the volume's folder.
type TPMState struct {
	// Folder is the folder of the state. Lock is the file that is locked as long as some process has
	// its descriptor, or one that it passed on.
	Folder, Lock *os.File

	root *os.Root
}

// TPM opens the state of a TPM in a volume's folder, which it creates, locks it, and gives it to a user.
func TPM(folder string, uid uint32) (*TPMState, error) {
	s, err := ArrivingTPM(folder)
	if err != nil {
		return nil, err
	}
	if err = errors.Join(lock(s.Lock), s.free()); err == nil {
		err = s.Give(uid)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// free returns an error if a TPM that a former version of the shim has started uses the state: it has
// locked the folder.
func (s *TPMState) free() error {
	if err := lock(s.Folder); err != nil {
		return err
	}
	return flock(int(s.Folder.Fd()), unix.LOCK_UN)
}

// ArrivingTPM is TPM for a guest that comes from another node, whose TPM has the state until then:
// it neither locks the state nor gives it to a user.
func ArrivingTPM(folder string) (_ *TPMState, err error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	defer root.Close()
	if err := root.Mkdir(tpm, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make folder of a TPM: %w", err)
	}
	if info, err := root.Lstat(tpm); err != nil || !info.IsDir() {
		return nil, errors.Join(fmt.Errorf("%w: %s in it is not a folder", ErrUnusable, tpm), err)
	}
	s := &TPMState{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.root, err = root.OpenRoot(tpm); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	if s.Folder, err = s.root.Open("."); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	s.Lock, err = openLock(root)
	return s, err
}

func openLock(root *os.Root) (*os.File, error) {
	f, err := root.OpenFile(tpmLock, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s in it is not a regular file", ErrUnusable, tpmLock)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Close closes the files. Other processes keep theirs.
func (s *TPMState) Close() error {
	var errs []error
	for _, f := range []*os.File{s.Folder, s.Lock} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	if s.root != nil {
		errs = append(errs, s.root.Close())
	}
	return errors.Join(errs...)
}

// Give gives the folder and its files to a user.
func (s *TPMState) Give(uid uint32) error {
	if _, err := s.Folder.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read the state of a TPM: %w", err)
	}
	return give(s.root, s.Folder, int(uid))
}

// give gives a folder and its files to a user.
func give(state *os.Root, dir *os.File, uid int) error {
	entries, err := dir.ReadDir(maxTPMFiles + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the state of a TPM: %w", err)
	}
	if len(entries) > maxTPMFiles {
		return fmt.Errorf("%w: folder %s in it has more than %d files", ErrUnusable, tpm, maxTPMFiles)
	}
	for _, e := range entries {
		f, err := open(state, e.Name(), os.O_RDONLY, maxTPMFile)
		if err == nil {
			err = errors.Join(f.Chown(uid, uid), f.Close())
		}
		if err != nil {
			return fmt.Errorf("give the state to the TPM: %w", err)
		}
	}
	if err := errors.Join(dir.Chmod(0o700), dir.Chown(uid, uid)); err != nil {
		return fmt.Errorf("give the state to the TPM: %w", err)
	}
	return nil
}

// Adopt makes the state that of a TPM which has kept it elsewhere, in a folder that its user can change,
// and gives it to that user. An interrupted copy is made again.
func (s *TPMState) Adopt(from string, uid uint32) error {
	source, err := os.OpenRoot(from)
	if err != nil {
		return fmt.Errorf("take over the state of a TPM: %w", err)
	}
	defer source.Close()
	came, err := names(source)
	if err != nil {
		return err
	}
	was, err := names(s.root)
	if err != nil {
		return err
	}
	for name := range came {
		if err := s.copy(source, name); err != nil {
			return fmt.Errorf("take over the state of a TPM: %w", err)
		}
	}
	for name := range was {
		if came[name] {
			continue
		}
		if err := s.root.Remove(name); err != nil { // such as volatile state of before
			return fmt.Errorf("take over the state of a TPM: %w", err)
		}
	}
	if err := s.Give(uid); err != nil {
		return err
	}
	if err := s.Folder.Sync(); err != nil {
		return fmt.Errorf("take over the state of a TPM: %w", err)
	}
	return nil
}

// names returns the names of a TPM's files, without those of swtpm's locks.
func names(root *os.Root) (map[string]bool, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("read the state of a TPM: %w", err)
	}
	defer dir.Close()
	entries, err := dir.ReadDir(maxTPMFiles + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the state of a TPM: %w", err)
	}
	if len(entries) > maxTPMFiles {
		return nil, fmt.Errorf("%w: folder %s in it has more than %d files", ErrUnusable, tpm, maxTPMFiles)
	}
	all := map[string]bool{}
	for _, e := range entries {
		if e.Name()[0] != '.' {
			all[e.Name()] = true
		}
	}
	return all, nil
}

// newSuffix ends the name of a file that is not complete.
const newSuffix = ".new"

// copy copies a file, whole or not at all.
func (s *TPMState) copy(source *os.Root, name string) error {
	from, err := open(source, name, os.O_RDONLY, maxTPMFile)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := s.root.OpenFile(name+newSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, io.LimitReader(from, maxTPMFile))
	if err == nil {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return err
	}
	return s.root.Rename(name+newSuffix, name)
}
