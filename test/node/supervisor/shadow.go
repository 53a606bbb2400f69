package supervisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// The namespace of Shadow is kept at a file of a mount that no other namespace has.
const (
	keptFolder = "/run/shadow"
	keptFile   = keptFolder + "/mnt"
)

// maxCPUs is how many processors a unix.CPUSet has room for.
const maxCPUs = 1024

// Shadow becomes the program that args name, which sees the files below dir in place of those of the
// same names below /proc/sys: what it sets there, the machine keeps as it was. The mounts for that are in
// a separate mount namespace, which takes part in all other mounts of the node; in the node's own, what
// covers a part of /proc would keep pods with a user namespace from mounting theirs.
//
// The next call enters the same namespace: a kubelet finds the loop devices of its predecessor by paths,
// which end with the namespace.
func Shadow(dir string, args []string) error {
	program, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	// The namespace is this thread's, and the only thread left after exec is this one.
	runtime.LockOSThread()
	kept, err := os.Open(keptFile)
	switch {
	case err == nil:
		err = errors.Join(enterNamespace(kept), kept.Close())
	case errors.Is(err, fs.ErrNotExist):
		err = keepNamespace(dir)
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("run %s: %w", program, syscall.Exec(program, args, os.Environ()))
}

// enterNamespace has the thread enter a mount namespace.
func enterNamespace(namespace *os.File) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leave the other threads' root: %w", err)
	}
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the mount namespace %s: %w", namespace.Name(), err)
	}
	return nil
}

// keepNamespace makes a mount namespace for the thread that shows the files below dir, and keeps it.
func keepNamespace(dir string) error {
	if err := os.Mkdir(keptFolder, 0o700); err != nil {
		return fmt.Errorf("keep a mount namespace: %w", err)
	}
	if err := mount(keptFolder, keptFolder, "", unix.MS_BIND); err != nil {
		return err
	}
	if err := unix.Mount("", keptFolder, "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts in %s apart: %w", keptFolder, err)
	}
	if err := newNamespace(); err != nil {
		return err
	}
	return cover(dir)
}

// newNamespace has the thread enter a new mount namespace, and keeps that. The kernel lets a namespace be kept in
// an older one alone, and numbers them on each processor apart: on one of them the new one is the younger.
func newNamespace() error {
	node, err := os.Open("/proc/thread-self/ns/mnt")
	if err != nil {
		return fmt.Errorf("find the node's mount namespace: %w", err)
	}
	defer node.Close()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("find the processors: %w", err)
	}
	kept := fmt.Errorf("no processor: %w", unix.EINVAL)
	for cpu := 0; errors.Is(kept, unix.EINVAL) && cpu < maxCPUs; cpu++ {
		if !all.IsSet(cpu) {
			continue
		}
		var one unix.CPUSet
		one.Set(cpu)
		if err := errors.Join(unix.SchedSetaffinity(0, &one), enterNamespace(node), unix.Unshare(unix.CLONE_NEWNS)); err != nil {
			return fmt.Errorf("make a mount namespace: %w", err)
		}
		kept = keep(fmt.Sprintf("/proc/self/task/%d/ns/mnt", unix.Gettid()))
	}
	return errors.Join(kept, unix.SchedSetaffinity(0, &all))
}

// keep mounts a namespace on the file of those to come.
func keep(namespace string) error {
	kept := make(chan error)
	go func() { // another thread, which has the node's namespace
		f, err := os.OpenFile(keptFile, os.O_CREATE, 0o600)
		if err == nil {
			err = errors.Join(f.Close(), mount(namespace, keptFile, "", unix.MS_BIND))
		}
		if err != nil {
			err = errors.Join(err, os.Remove(keptFile))
		}
		kept <- err
	}()
	return <-kept
}

// cover shows the files below dir in place of sysctls, to the thread's namespace alone.
func cover(dir string) error {
	if err := unix.Mount("", "/proc", "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts below /proc apart: %w", err)
	}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return mount(path, filepath.Join("/proc/sys", name), "", unix.MS_BIND)
	})
	if err != nil {
		return fmt.Errorf("cover sysctls: %w", err)
	}
	return nil
}
