// Package forks shares the memory of checkpoints between the VMs that go on from them.
//
// It owns the files and the RAM that these VMs have in common: a copy of each checkpoint's memory on
// disk, from which a start takes it, and the RAM that the running ones map. QEMU maps it privately, so
// that a VM costs what it writes. When a VM needs a checkpoint is package lifecycle's. How QEMU gets the
// RAM is package ramfd's.
//
//	checkpoint ──▶ DIR/SHA256 ──▶ links of containers that have not started
//	                   └──▶ RAM, a sealed memfd ──▶ QEMU, QEMU, …
//
// The RAM is the shim's, and does not outlive it. VMs that run keep theirs; the first start of the next
// shim makes it again. It belongs to no pod, so its sum has a limit, as have the outlines: what a stream has beside
// the RAM, in the shim's own memory. A namespace has a part of each. What no VM uses goes when another needs the place.
package forks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nodevirt/nodevirt/internal/bounds"
	"github.com/nodevirt/nodevirt/internal/budget"
	"github.com/nodevirt/nodevirt/shim/checkpoint"
)

// ErrNotShared says that VMs can't share the memory of a checkpoint. Each can have its own.
var ErrNotShared = errors.New("memory that is not shared")

const (
	// keep is how long what no VM uses is kept for the next one.
	keep = 5 * time.Minute
	// MaxOutline bounds what is kept of one stream beside the RAM, in bytes.
	MaxOutline = bounds.Outline
	// MaxOutlines bounds the outlines of all streams, in bytes.
	MaxOutlines = bounds.Outlines
	// NamespaceOutlines bounds the outlines of the streams of a namespace, in bytes.
	NamespaceOutlines = bounds.NamespaceOutlines
	// Share is the part of the node's memory that all RAM together may have: a fourth. namespaceShare is the part of
	// that which the RAM of one namespace may have: a half.
	Share          = 4
	namespaceShare = 2
	// minShare is the least RAM, in bytes, that a namespace may have of a smaller limit.
	minShare = 1 << 20
)

// Limit returns how much RAM, in bytes, a node's VMs may share.
func Limit() (int64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, fmt.Errorf("read the size of the node's memory: %w", err)
	}
	return int64(info.Totalram) * int64(info.Unit) / Share, nil
}

// Store has the memory of checkpoints. Its methods may be called from any goroutine.
type Store struct {
	dir      string
	limit    int64
	ram      *budget.Budget // bytes of all RAM
	outlines *budget.Budget // bytes of all that is kept beside it

	mu     sync.Mutex
	shared map[key]*entry
}

// key identifies RAM.
type key struct {
	sum  string // of the checkpoint's memory
	size int64
}

// entry is RAM, or its making.
type entry struct {
	namespace string
	grants    grants
	made      chan struct{} // closed once the fields below are set
	ram       *os.File      // nil if the making failed
	rest      []byte
	failed    error

	// Under the store's mutex:
	last  time.Time // when it was used
	opens int       // memories that are open
	used  bool      // a VM used it when Collect last looked
}

// grants are what an entry has of the store's budgets.
type grants struct{ ram, outline *budget.Grant }

func (g grants) release() {
	g.ram.Release()
	g.outline.Release()
}

// New returns a Store with files in a folder and at most limit bytes of RAM, with 0 none.
func New(dir string, limit int64) *Store {
	return &Store{
		dir: dir, limit: limit, shared: map[key]*entry{},
		ram:      budget.New("bytes of shared RAM", limit, max(limit/namespaceShare, min(limit, minShare))),
		outlines: budget.New("bytes of memory beside shared RAM", MaxOutlines, NamespaceOutlines),
	}
}

// Link makes a file with the compressed memory of a checkpoint, whose checksum it compares.
// Containers of the same checkpoint have the same file, which nothing may write. Each must bring the whole
// memory: who knows only its checksum gets nothing.
func (s *Store) Link(ctx context.Context, files checkpoint.Files, m checkpoint.Manifest, to string) error {
	path := filepath.Join(s.dir, m.Memory.SHA256)
	now := time.Now()
	err := os.Chtimes(path, now, now) // so that it is kept
	if err == nil {
		err = checkpoint.CopyMemory(ctx, files, m, io.Discard)
	}
	if err == nil {
		err = os.Link(path, to)
	}
	// On another file system the container has its own file.
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EXDEV) {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(to), "*"+partial)
	if err != nil {
		return err
	}
	err = checkpoint.CopyMemory(ctx, files, m, f)
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := os.Rename(f.Name(), to); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	// Another call may have been faster.
	if err := os.Link(to, path); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, unix.EXDEV) {
		return errors.Join(err, os.Remove(to))
	}
	return nil
}

// partial ends the names of files that are not complete.
const partial = ".partial"

// Memory is the memory of a VM that shares its RAM.
type Memory struct {
	// RAM is a sealed memfd with all pages of the block, one of [ramfd.Blocks].
	RAM *os.File
	// Rest is QEMU's stream without that block's pages.
	Rest io.Reader

	store *Store
	of    *entry
	key   key
	once  sync.Once
}

// Close closes the RAM. A QEMU that has it keeps it.
func (m *Memory) Close() error {
	m.once.Do(func() {
		m.store.mu.Lock()
		defer m.store.mu.Unlock()
		m.of.opens--
	})
	return m.RAM.Close()
}

// Forget is Close for a VM that did not start. What no other VM uses is not kept for the next one.
func (m *Memory) Forget() error {
	err := m.Close()
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	if m.store.shared[m.key] == m.of && m.of.idle() {
		m.store.drop(m.key, m.of)
	}
	return err
}

// Open returns the memory of a checkpoint for a VM of a namespace with so many bytes of RAM. It reads a file of
// [Store.Link] unless the RAM is there already. The error is [ErrNotShared] if the VM must read the file itself.
func (s *Store) Open(ctx context.Context, namespace string, m checkpoint.Manifest, size int64, from *os.File) (*Memory, error) {
	if s.limit == 0 {
		return nil, fmt.Errorf("%w: the node does not share any", ErrNotShared)
	}
	k := key{m.Memory.SHA256, size}
	for {
		s.mu.Lock()
		e, found := s.shared[k]
		if !found {
			e = &entry{
				namespace: namespace, made: make(chan struct{}),
				grants: grants{ram: s.ram.Grant(namespace), outline: s.outlines.Grant(namespace)},
			}
			s.shared[k] = e
		}
		s.mu.Unlock()
		if !found {
			s.make(k, e, ctx, m, from)
		}
		select {
		case <-e.made:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if e.failed == nil {
			memory, err := s.reopen(k, e)
			if !errors.Is(err, os.ErrClosed) {
				return memory, err
			}
			continue // it was not used for long
		}
		if !found || errors.Is(e.failed, ErrNotShared) {
			return nil, e.failed
		}
	}
}

// reopen returns the memory of an entry.
func (s *Store) reopen(k key, e *entry) (*Memory, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.ram == nil {
		return nil, os.ErrClosed
	}
	fd, err := unix.FcntlInt(e.ram.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate the descriptor of shared RAM: %w", err)
	}
	e.last = time.Now()
	e.opens++
	return &Memory{RAM: os.NewFile(uintptr(fd), e.ram.Name()), Rest: bytes.NewReader(e.rest), store: s, of: e, key: k}, nil
}

// make makes an entry's RAM.
func (s *Store) make(k key, e *entry, ctx context.Context, m checkpoint.Manifest, from *os.File) { //nolint:revive // the context is of one user
	ram, rest, err := s.split(ctx, e, m, k.size, from)
	if err != nil {
		e.grants.release()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.ram, e.rest, e.failed, e.last = ram, rest, err, time.Now()
	if err != nil {
		delete(s.shared, k)
	}
	close(e.made)
}

// idle reports whether no VM uses an entry that has been made. The caller holds the store's mutex.
func (e *entry) idle() bool { return e.ram != nil && e.opens == 0 && !e.used }

// drop removes an entry. A QEMU that has its RAM keeps it. The caller holds s.mu.
func (s *Store) drop(k key, e *entry) {
	delete(s.shared, k)
	e.ram.Close()
	e.ram, e.rest = nil, nil
	e.grants.release()
}
