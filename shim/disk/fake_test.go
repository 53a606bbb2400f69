package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/expand"
	"github.com/nodevirt/nodevirt/imageunpack/iscsi"
	"github.com/nodevirt/nodevirt/imageunpack/persist"
	"github.com/nodevirt/nodevirt/imageunpack/rawview"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/shim/witness"
)

// fakeImages is containerd's side of an Unpacker: images are folders. What needs no
// containerd is the real one's.
type fakeImages struct {
	*imageunpack.Unpacker
	folders string

	mu   sync.Mutex
	held map[string]string // images by owners
}

func (f *fakeImages) Acquire(ctx context.Context, owner, image, path string) (imageunpack.Disk, error) {
	root, err := os.OpenRoot(filepath.Join(f.folders, image))
	if err != nil {
		return imageunpack.Disk{}, err
	}
	defer root.Close()
	d, err := imageunpack.Examine(ctx, root, path, 1<<40)
	if err != nil {
		return imageunpack.Disk{}, err
	}
	d.Owner, d.Image, d.ImageID = owner, image, "sha256:"+image
	f.mu.Lock()
	defer f.mu.Unlock()
	f.held[owner] = image
	return d, nil
}

func (f *fakeImages) Release(_ context.Context, owner string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.held, owner)
	return nil
}

func (f *fakeImages) Owners(context.Context) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.held)), nil
}

func (f *fakeImages) Open(_ context.Context, d imageunpack.Disk, name string) (*os.File, error) {
	return os.Open(filepath.Join(f.folders, d.Image, name))
}

// fakeExpander copies what is raw already.
type fakeExpander struct {
	reflink bool
	held    []string
	turns   *expand.Turns
}

func (f *fakeExpander) Expand(_ context.Context, s expand.Source, path string, tell func(expand.Progress)) error {
	to, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	tell(expand.Progress{Done: 0.5})
	_, err = io.Copy(to, s.File)
	return errors.Join(err, to.Close())
}

func (f *fakeExpander) Hold(_ expand.Key, path string) { f.held = append(f.held, path) }
func (f *fakeExpander) Reflink() bool                  { return f.reflink }
func (f *fakeExpander) Turns() *expand.Turns           { return f.turns }

// fakeDaemon is a tgtd. It has no targets while it is away.
type fakeDaemon struct {
	mu     sync.Mutex
	away   bool
	served map[string]iscsi.Target
	users  []string // initiators that are logged in to each target
	limits int      // calls of Hold
}

func (f *fakeDaemon) Serve(_ context.Context, t iscsi.Target) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return iscsi.ErrUnavailable
	}
	if _, err := os.Stat(t.Path); err != nil && !strings.HasPrefix(t.Path, "/proc/") { // a view shows nothing here
		return err
	}
	f.served[t.Name] = t
	return nil
}

func (f *fakeDaemon) Remove(_ context.Context, a iscsi.Access) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.served, a.Name)
	return nil
}

func (f *fakeDaemon) Break(_ context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t, ok := f.served[name]; ok {
		t.Path = ""
		f.served[name] = t
	}
	return nil
}

func (f *fakeDaemon) Hold(context.Context, iscsi.Access) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limits++
	return nil
}

func (f *fakeDaemon) List(context.Context) ([]iscsi.Status, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.away {
		return nil, iscsi.ErrUnavailable
	}
	var all []iscsi.Status
	for _, t := range f.served {
		all = append(all, iscsi.Status{Name: t.Name, Path: t.Path, User: t.User, Initiators: f.users})
	}
	return all, nil
}

func (*fakeDaemon) Portal() netip.AddrPort { return netip.MustParseAddrPort("127.0.0.1:3260") }

func (f *fakeDaemon) Watch(ctx context.Context, back func(context.Context)) {
	back(ctx)
	<-ctx.Done()
}

// fakeSecrets are libvirtd's.
type fakeSecrets map[string]string

func (f fakeSecrets) SetSecret(_ context.Context, s domain.Secret, value string) error {
	f[s.UUID] = value
	return nil
}

func (f fakeSecrets) RemoveSecret(_ context.Context, uuid string) error {
	delete(f, uuid)
	return nil
}

// fakeViews has this process show all views.
type fakeViews struct{ shown map[string]int }

func (f fakeViews) Show(_ context.Context, v rawview.View, base *os.File) (int, error) {
	if _, err := base.Stat(); err != nil {
		return 0, err
	}
	f.shown[v.ID] = os.Getpid()
	return os.Getpid(), nil
}

func (f fakeViews) Hide(_ context.Context, id string) error {
	delete(f.shown, id)
	return nil
}

func (f fakeViews) Process(id string) (int, error) { return f.shown[id], nil }
func (f fakeViews) List() ([]string, error)        { return slices.Sorted(maps.Keys(f.shown)), nil }

// fakeDevices are regular files. Nodes are in a folder, and hold their device's number.
type fakeDevices struct {
	dir string
}

// fakeSeen are processes: those that have devices or files open, by the devices' numbers or the files' inodes, and
// QEMUs with network disks.
type fakeSeen struct {
	held    map[uint64][]witness.Holder
	remotes []witness.Process
	looks   int
}

func (f *fakeSeen) look() (seen, error) {
	f.looks++
	return f, nil
}

func (f *fakeSeen) Holders(file witness.File) ([]witness.Holder, error) {
	if file.Block {
		return f.held[file.Device], nil
	}
	return f.held[file.Inode], nil
}

func (f *fakeSeen) Remotes(is func(witness.RemoteDisk) bool) (found []witness.Holder) {
	for _, p := range f.remotes {
		for _, d := range p.Remote {
			if is(d) {
				found = append(found, witness.Holder{Process: p, Writes: !d.ReadOnly})
			}
		}
	}
	return found
}

func (f fakeDevices) open(path string, _ bool) (*os.File, uint64, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", ErrVolume, err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = ErrVolume
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Sys().(*syscall.Stat_t).Ino, nil
}

func (fakeDevices) blockSize(f *os.File) (vmspec.BlockSize, error) {
	if _, err := f.Stat(); err != nil {
		return vmspec.BlockSize{}, err
	}
	return vmspec.BlockSize{Logical: 512, Physical: 4096}, nil
}

func (f fakeDevices) path(name string) string { return filepath.Join(f.dir, name) }

func (f fakeDevices) nodes(prefix string) ([]string, error) {
	return filepath.Glob(f.path(prefix) + "*")
}

func (fakeDevices) makeNode(path string, number uint64, _, _ uint32) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(file, number)
	return errors.Join(err, file.Close())
}

// fakePersister copies what is raw already, at once.
type fakePersister struct{}

func (fakePersister) write(ctx context.Context, volume *os.File, from persist.Source, progress func(float64)) error {
	end, err := from.Turn(ctx)
	if err != nil {
		return err
	}
	defer end()
	content, err := io.ReadAll(from.File)
	if err != nil {
		return err
	}
	if info, err := volume.Stat(); err == nil && info.Size() > 0 && info.Size() < from.Size {
		return persist.ErrUnfit
	}
	_, err = volume.WriteAt(content, 0)
	progress(1)
	return err
}

// fakeReach holds the portals that each user may reach.
type fakeReach map[uint32][]netip.AddrPort

func (f fakeReach) Restore(_ context.Context, allowed map[uint32][]netip.AddrPort, keep func(uint32) bool) error {
	maps.DeleteFunc(f, func(uid uint32, _ []netip.AddrPort) bool { return !keep(uid) })
	maps.Copy(f, allowed)
	return nil
}

func (f fakeReach) Allow(_ context.Context, uid uint32, portals []netip.AddrPort) error {
	if f[uid] = portals; len(portals) == 0 {
		delete(f, uid)
	}
	return nil
}

func (f fakeReach) Watch(ctx context.Context) { <-ctx.Done() }

// node is a node whose parts are all fakes.
type node struct {
	*Disks
	images   *fakeImages
	expander *fakeExpander
	daemon   *fakeDaemon
	secrets  fakeSecrets
	shown    map[string]int
	reach    fakeReach
	seen     *fakeSeen
	dir      string
	// answers are the addresses of the portals that answer.
	answers map[string]string
}

// ask is an asker.
func (n *node) ask(_ context.Context, portal string) (netip.AddrPort, error) {
	at, ok := n.answers[portal]
	if !ok {
		for _, other := range n.answers { // by its address
			if other == portal {
				at = other
			}
		}
	}
	if at == "" {
		return netip.AddrPort{}, fmt.Errorf("dial %s: no route", portal)
	}
	return netip.MustParseAddrPort(at), nil
}

func newNode(t *testing.T) *node {
	t.Helper()
	return newNodeIn(t, t.TempDir())
}

// newNodeIn makes a node whose files are in a folder.
func newNodeIn(t *testing.T, dir string) *node {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	n := &node{
		images:   &fakeImages{Unpacker: imageunpack.New(nil, imageunpack.Options{MaxDiskSize: 1 << 40}), folders: filepath.Join(dir, "images"), held: map[string]string{}},
		expander: &fakeExpander{turns: expand.NewTurns(1)},
		daemon:   &fakeDaemon{served: map[string]iscsi.Target{}},
		answers:  map[string]string{"10.0.0.2:3260": "10.0.0.2:3260", "10.0.0.3:3300": "10.0.0.3:3300", "mon.example.com:3300": "10.0.0.4:3300"},
		seen:     &fakeSeen{held: map[uint64][]witness.Holder{}},
		secrets:  fakeSecrets{}, shown: map[string]int{}, reach: fakeReach{}, dir: dir,
	}
	key, err := iscsi.OpenKey(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	n.Disks = New(Options{
		Unpacker: n.images, Expander: n.expander, Shares: dir, LastUID: 9, Reach: n.reach,
		Network: true, CephConfig: filepath.Join(dir, "ceph", "ceph.conf"), CephNetworks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")},
		Folder:  func(id string) string { return filepath.Join(dir, "containers", id) },
		ISCSI:   ISCSI{Daemon: n.daemon, Key: key, Secrets: n.secrets, Logger: log},
		Hooks:   fakeHooks{},
		Views:   rawview.Options{Logger: log},
		devices: fakeDevices{filepath.Join(dir, "dev")}, processes: n.seen.look, persist: fakePersister{}, views: fakeViews{n.shown}, ask: n.ask,
	})
	makeFolder(t, dir, "dev")
	n.addImage(t, "guest", []byte("a raw disk"))
	n.addImage(t, "cd", []byte("a CD"))
	makeFolder(t, dir, "images", "none")
	return n
}

// addImage adds an image whose disk begins with a text.
func (n *node) addImage(t *testing.T, name string, begin []byte) {
	t.Helper()
	makeFolder(t, n.dir, "images", name, "disk")
	content := make([]byte, 1<<20)
	copy(content, begin)
	if err := os.WriteFile(filepath.Join(n.dir, "images", name, "disk", "disk.img"), content, 0o600); err != nil {
		t.Fatal(err)
	}
}
