package domain

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Abandoned finds the folders that libvirtd created for QEMU processes that are gone, and that libvirtd
// does not remove. A power cut leaves them: libvirtd records the domains that run in its run folder, which
// is empty after a boot. They contain the key with which libvirtd passes secrets to QEMU.
type Abandoned struct {
	// State is the folder of libvirtd's QEMU driver that survives a boot (/var/lib/libvirt/qemu),
	// Run is libvirtd's run folder (/run/libvirt).
	State, Run string
	// UIDBase is the first of UIDCount user IDs of VMs. libvirtd gives each folder to the user of its QEMU, so
	// other users' folders are not nodevirt's.
	UIDBase, UIDCount uint32
}

const (
	// masterKey is the file in a domain's folder with the key for its secrets.
	masterKey = "master-key.aes"
	// maxAbandoned bounds the files that one call removes, for seconds at the most: libvirtd's start waits
	// for it, and a guest that has compromised its QEMU can create any number.
	maxAbandoned = 100_000
	// maxAbandonedDepth bounds the folders in a folder, each of which is open while it is emptied.
	maxAbandonedDepth = 64
)

// Remove removes the folders and returns their paths below State. No libvirtd may run during the call. It
// keeps the folders of domains that libvirtd has recorded as running, and of users that run a process. It
// continues after an error.
func (a Abandoned) Remove() (removed []string, err error) {
	root, err := os.OpenRoot(a.State)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("remove the folders of domains that are gone: %w", err)
	}
	defer root.Close()
	recorded, err := recordedFolders(a.Run)
	if err != nil {
		return nil, fmt.Errorf("read libvirtd's domains: %w", err)
	}
	running, err := runningUsers()
	if err != nil {
		return nil, fmt.Errorf("list the users of processes: %w", err)
	}
	r := remover{left: maxAbandoned}
	var errs []error
	for _, parent := range []string{".", "channel/target", "ram"} {
		names, err := folderNames(root, parent)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, name := range names {
			folder := path.Join(parent, name)
			uid, ok := folderUser(root, folder)
			if !ok || uid-a.UIDBase >= a.UIDCount || running[uid] || recorded[domainID(name)] {
				continue
			}
			if err := r.remove(root, folder); err != nil {
				errs = append(errs, fmt.Errorf("remove %s of a domain that is gone: %w", filepath.Join(a.State, folder), err))
				continue
			}
			removed = append(removed, folder)
		}
	}
	return removed, errors.Join(errs...)
}

// recordedFolders returns the folders of the domains that libvirtd has recorded as running, by their [domainID].
func recordedFolders(runDir string) (map[string]bool, error) {
	files, err := filepath.Glob(filepath.Join(runDir, "qemu", "*.xml"))
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, file := range files {
		s, ok, err := readStatus(file)
		if err != nil {
			return nil, err
		}
		if ok {
			all[domainID(filepath.Base(s.Lib.Path))] = true
		}
	}
	return all, nil
}

// domainID returns ID-NAME of a folder's name, which is that or domain-ID-NAME.
func domainID(name string) string { return strings.TrimPrefix(name, "domain-") }

// runningUsers returns the users of all processes.
func runningUsers() (map[uint32]bool, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	users := map[uint32]bool{}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join("/proc", e.Name(), "status"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // the process has ended
		}
		if err != nil {
			return nil, err
		}
		_, line, _ := strings.Cut(string(text), "\nUid:")
		ids, _, _ := strings.Cut(line, "\n")
		for field := range strings.FieldsSeq(ids) {
			uid, err := strconv.ParseUint(field, 10, 32)
			if err != nil {
				return nil, fmt.Errorf("process %s has the users %q", e.Name(), ids)
			}
			users[uint32(uid)] = true
		}
	}
	return users, nil
}

// folderNames returns the names of domains' folders in a folder. No VM's user can create any there.
func folderNames(root *os.Root, dir string) (names []string, err error) {
	f, err := root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := f.Readdirnames(-1)
	for _, name := range all {
		if domainFolder.MatchString(name) {
			names = append(names, name)
		}
	}
	return names, err
}

// folderUser returns the user of a folder, and false for anything else.
func folderUser(root *os.Root, folder string) (uint32, bool) {
	info, err := root.Lstat(folder)
	if err != nil || !info.IsDir() {
		return 0, false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return stat.Uid, true
}

// remover removes folders, and at most left files in them.
type remover struct{ left int }

// remove removes a folder, its key first.
func (r *remover) remove(root *os.Root, folder string) error {
	if err := root.Remove(path.Join(folder, masterKey)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return r.removeTree(root, folder, maxAbandonedDepth)
}

func (r *remover) removeTree(root *os.Root, folder string, depth int) error {
	if depth == 0 {
		return fmt.Errorf("more than %d folders in each other; remove it by hand", maxAbandonedDepth)
	}
	sub, err := root.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer sub.Close()
	for {
		names, err := someNames(sub)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			return root.Remove(folder)
		}
		for _, name := range names {
			if r.left--; r.left < 0 {
				return fmt.Errorf("more than %d files; remove it by hand", maxAbandoned)
			}
			err := sub.Remove(name)
			if errors.Is(err, unix.ENOTEMPTY) {
				err = r.removeTree(sub, name, depth-1)
			}
			if err != nil {
				return err
			}
		}
	}
}

// someNames returns names of files in a folder, and none if it is empty.
func someNames(root *os.Root) ([]string, error) {
	f, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(1000)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}
