package imageunpack_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/namespaces"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/test/needs"
	"github.com/nodevirt/nodevirt/test/wait"
)

const (
	namespace   = "k8s.io"
	snapshotter = "overlayfs"
	maxDisk     = 1 << 40
)

// node is a containerd of the test's own, and an Unpacker on it.
type node struct {
	*imageunpack.Unpacker
	t        *testing.T
	ctx      context.Context // in the images' namespace
	client   *containerd.Client
	root     string // containerd's
	mountDir string
}

// shared is the containerd that the tests of this package take turns with. It starts with the
// first that needs it.
var shared struct {
	once   sync.Once
	err    error
	dir    string
	client *containerd.Client
	stop   func() error
}

func TestMain(m *testing.M) {
	code := m.Run()
	var err error
	if shared.stop != nil {
		err = shared.stop()
	}
	if err = errors.Join(err, os.RemoveAll(shared.dir)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func startShared() {
	if shared.dir, shared.err = os.MkdirTemp("", "imageunpack-"); shared.err != nil {
		return
	}
	shared.stop, shared.err = startContainerd(shared.dir)
}

// startContainerd starts a containerd below dir, in a separate mount namespace.
func startContainerd(dir string) (stop func() error, err error) {
	binary, err := findProgram("containerd")
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "config.toml")
	socket := filepath.Join(dir, "containerd.sock")
	content := fmt.Appendf(nil, containerdConfig, dir, dir, socket, socket, dir)
	if err := os.WriteFile(config, content, 0o600); err != nil {
		return nil, err
	}
	var log bytes.Buffer
	cmd := exec.Command(binary, "-c", config)
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Unshareflags: syscall.CLONE_NEWNS, // Go makes its mounts private
		Pdeathsig:    syscall.SIGKILL,
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start containerd: %w", err)
	}
	end := func() error {
		return errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait())
	}
	shared.client, err = containerd.New(socket, containerd.WithTimeout(2*time.Minute))
	if err == nil {
		err = awaitVersion(shared.client)
	}
	if err != nil {
		err = fmt.Errorf("reach containerd: %w\n%s", err, log.String())
		return nil, errors.Join(err, end())
	}
	return func() error { return errors.Join(shared.client.Close(), end()) }, nil
}

// awaitVersion waits for a containerd whose socket may be there before it listens.
func awaitVersion(client *containerd.Client) error {
	return wait.Do(context.Background(), func(ctx context.Context) error {
		_, err := client.Version(ctx)
		return err
	})
}

const containerdConfig = `version = 3
root = '%s/root'
state = '%s/state'
disabled_plugins = [
  'io.containerd.cri.v1.images', 'io.containerd.cri.v1.runtime', 'io.containerd.grpc.v1.cri',
  'io.containerd.internal.v1.opt', 'io.containerd.internal.v1.tracing',
  'io.containerd.tracing.processor.v1.otlp', 'io.containerd.nri.v1.nri',
  'io.containerd.snapshotter.v1.btrfs', 'io.containerd.snapshotter.v1.devmapper',
  'io.containerd.snapshotter.v1.zfs', 'io.containerd.snapshotter.v1.erofs',
]
[grpc]
  address = '%s'
[ttrpc]
  address = '%s.ttrpc'
[proxy_plugins.stargz]
  type = 'snapshot'
  address = '%s/stargz.sock'
`

// findProgram returns the path of a program in bin/ at the module's top.
func findProgram(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			binary := filepath.Join(dir, "bin", name)
			if _, err := os.Stat(binary); err != nil {
				return "", fmt.Errorf("%w: run make tools", err)
			}
			return binary, nil
		}
	}
	return "", errors.New("no go.mod above the working directory")
}

// newNode returns an Unpacker on the shared containerd.
func newNode(t *testing.T) *node {
	t.Helper()
	needs.Parts(t, "root, containerd")
	if shared.once.Do(startShared); shared.err != nil {
		t.Fatal(shared.err)
	}
	n := &node{
		t:        t,
		ctx:      namespaces.WithNamespace(t.Context(), namespace),
		client:   shared.client,
		root:     filepath.Join(shared.dir, "root"),
		mountDir: t.TempDir(),
	}
	n.Unpacker = imageunpack.New(n.client, imageunpack.Options{
		Namespace: namespace, Snapshotter: snapshotter, MountDir: n.mountDir, MaxDiskSize: maxDisk,
	})
	return n
}

// held lists all that an Unpacker may hold: leases, views and mounts.
func (n *node) held() []string {
	n.t.Helper()
	held := []string{}
	all, err := n.client.LeasesService().List(n.ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, l := range all {
		held = append(held, "lease "+l.ID)
	}
	add := func(_ context.Context, i snapshots.Info) error {
		if i.Kind != snapshots.KindCommitted {
			held = append(held, fmt.Sprintf("%s %s", i.Kind, i.Name))
		}
		return nil
	}
	err = n.client.SnapshotService(snapshotter).Walk(n.ctx, add)
	if err != nil {
		n.t.Fatal(err)
	}
	left, err := os.ReadDir(n.mountDir)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, e := range left {
		held = append(held, "mount point "+e.Name())
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		n.t.Fatal(err)
	}
	for line := range bytes.Lines(mounts) {
		if bytes.Contains(line, []byte(n.mountDir)) {
			held = append(held, "mount "+string(line))
		}
	}
	return held
}

// wantNothing fails the test if anything is held.
func (n *node) wantNothing(when string) {
	n.t.Helper()
	if held := n.held(); len(held) != 0 {
		n.t.Errorf("%s there are still %q", when, held)
	}
}

// collectGarbage has containerd remove what earlier tests have left to it.
func (n *node) collectGarbage() {
	n.t.Helper()
	lease, err := n.client.LeasesService().Create(n.ctx, leases.WithRandomID())
	n.check(err)
	n.check(n.client.LeasesService().Delete(n.ctx, lease, leases.SynchronousDelete))
}

// acquire acquires a disk that is released at the test's end.
func (n *node) acquire(owner, image, path string) imageunpack.Disk {
	n.t.Helper()
	d, err := n.Acquire(n.ctx, owner, image, path)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		if err := n.Release(context.WithoutCancel(n.ctx), owner); err != nil {
			n.t.Error(err)
		}
	})
	return d
}
