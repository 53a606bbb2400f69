package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
)

// suffix is that of a file that replaces another one once it is complete. systemd, k3s and libvirt
// do not read files with it.
const suffix = ".nodevirt-new"

// read returns a file; nil if there is none. It refuses symbolic links: writing a file in place of
// the link would change what the file is.
func read(root *os.Root, name string) (*Content, error) {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no file is no error
	}
	if err != nil {
		return nil, fmt.Errorf("examine /%s: %w", name, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("examine /%s: not a regular file; replace it by a copy of its target", name)
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read /%s: %w", name, err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, fmt.Errorf("read /%s: %w", name, err)
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("read /%s: %w", name, err)
	}
	c := &Content{Data: text, Mode: info.Mode().Perm()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		c.UID, c.GID = int(st.Uid), int(st.Gid)
	}
	return c, nil
}

// write replaces a file atomically, and returns when it is on disk.
func write(root *os.Root, name string, c Content) (err error) {
	draft := name + suffix
	f, err := root.OpenFile(draft, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(c.Data)
	err = errors.Join(err, f.Chown(c.UID, c.GID), f.Chmod(c.Mode), f.Sync(), f.Close())
	if err == nil {
		err = root.Rename(draft, name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(draft))
	}
	dir, err := root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
