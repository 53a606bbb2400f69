// Package virtiofs shows folders of the node to guests: a virtiofsd for each.
//
// It owns the processes, what they may reach, and their sockets, in a folder that a reboot empties.
// QEMU is the only client. When file systems start and end is package vm's.
//
// A virtiofsd is root of a user namespace that no other VM has, and which has no id of the node's
// accounts. It sees one mount, of its folder. File systems with ID-mapped mounts store the guest's
// owners as they are; on others, such as NFS, virtiofsd has the rights of one user of the node.
package virtiofs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// ErrMissing says that the node has no virtiofsd.
var ErrMissing = errdefs.ErrFailedPrecondition.WithMessage("this node has no virtiofsd")

// Folder is a folder of the node.
type Folder struct {
	Path string
	// ReadOnly keeps the guest from writing.
	ReadOnly bool
}

// Owner says whose folders these are.
type Owner struct {
	// ID is the container's, and part of the sockets' paths.
	ID string
	// Client is the user of QEMU, which may connect. No other VM has it.
	Client uint32
	// User is the user and the group of virtiofsd on file systems without ID-mapped mounts.
	User uint32
}

// Servers are the virtiofsd of one node. Methods may be called at the same time for different owners.
type Servers struct {
	dir      string
	stage    []string
	programs []string
}

// New returns the servers below a folder, which it creates. Stage is a command that calls [Enter] with
// its last two arguments. The first of programs that exists is virtiofsd.
func New(dir string, stage, programs []string) (*Servers, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("create the folder of file systems: %w", err)
	}
	return &Servers{dir: dir, stage: stage, programs: programs}, nil
}

// Programs are the paths of virtiofsd in distributions.
func Programs() []string { return []string{"/usr/libexec/virtiofsd", oldProgram} }

// Socket returns the path of the socket of an owner's nth folder.
func (s *Servers) Socket(id string, n int) string { return s.path(id, n, ".sock") }

func (s *Servers) path(id string, n int, suffix string) string {
	return filepath.Join(s.dir, id, strconv.Itoa(n)+suffix)
}

// Start starts a virtiofsd for each folder, and returns when QEMU can connect to all. Started is called
// with each process: it may move the process into a cgroup. The processes outlive the caller. If Start
// fails, nothing is left.
func (s *Servers) Start(ctx context.Context, o Owner, folders []Folder, started func(pid int) error) (err error) {
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*killAfter)
			defer cancel()
			err = errors.Join(err, s.Remove(ctx, o.ID))
		}
	}()
	if err := s.Remove(ctx, o.ID); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(s.dir, o.ID), 0o711); err != nil {
		return fmt.Errorf("make folder of file systems: %w", err)
	}
	for n, f := range folders {
		if err := s.serve(ctx, o, n, f, started); err != nil {
			return fmt.Errorf("share folder %s: %w", f.Path, err)
		}
	}
	return nil
}

// Watch waits until one of an owner's virtiofsd has ended, or ctx has. The error is nil in the first
// case, and when there is none.
func (s *Servers) Watch(ctx context.Context, id string) error {
	all, err := s.of(id)
	if err != nil || len(all) == 0 {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, len(all))
	for _, n := range all {
		p := s.process(id, n)
		go func() {
			pid, err := p.Find()
			if err == nil && pid != 0 {
				err = p.Wait(ctx, pid)
			}
			ended <- err
		}()
	}
	return <-ended
}

// of returns the numbers of an owner's folders.
func (s *Servers) of(id string) ([]int, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, id))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("find the file systems of a VM: %w", err)
	}
	var all []int
	for _, e := range entries {
		if number, ok := strings.CutSuffix(e.Name(), ".pid"); ok {
			if n, err := strconv.Atoi(number); err == nil {
				all = append(all, n)
			}
		}
	}
	return all, nil
}

// Remove ends an owner's virtiofsd. Missing ones are no error.
func (s *Servers) Remove(ctx context.Context, id string) error {
	all, err := s.of(id)
	if err != nil {
		return err
	}
	for _, n := range all {
		if err := s.process(id, n).End(ctx); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(filepath.Join(s.dir, id)); err != nil {
		return fmt.Errorf("remove file systems: %w", err)
	}
	return nil
}

// Sweep removes the file systems whose owners are not known.
func (s *Servers) Sweep(ctx context.Context, known func(id string) bool) error {
	entries, err := os.ReadDir(s.dir)
	errs := []error{err}
	for _, e := range entries {
		if !known(e.Name()) {
			errs = append(errs, s.Remove(ctx, e.Name()))
		}
	}
	return errors.Join(errs...)
}
