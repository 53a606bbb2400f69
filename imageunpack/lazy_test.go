package imageunpack_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/pkg/snapshotters"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/imageunpack/registrydisk"
	testimages "github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/node/config"
	"github.com/nodevirt/nodevirt/test/node/registry"
	"github.com/nodevirt/nodevirt/test/wait"
)

// TestAcquireWhatIsFetchedAsItIsRead has the stargz snapshotter fetch a lazy image.
func TestAcquireWhatIsFetchedAsItIsRead(t *testing.T) {
	n := newNode(t)
	r := newLazyRegistry(t)
	n.startStargz(config.Node{Registry: r.address})
	raw := make([]byte, 64*mib)
	_, _ = rand.Read(raw) // it does not fail
	content := arranged(t, qcow2File(t, raw))
	ref, layer := r.push(t, content)

	n.pullLazily(ref)
	d := n.acquire("owner", ref, "")
	if d.Format != imageunpack.QCOW2 || d.Size != int64(len(content)) || d.VirtualSize != int64(len(raw)) || d.Snapshotter != config.Stargz {
		t.Errorf("got %+v", d)
	}
	if served := r.served.Load(); served > layer.Size/10 {
		t.Errorf("pull and check have fetched %d of %d bytes", served, layer.Size)
	}
	f, err := n.Open(n.ctx, d, d.Path)
	n.check(err)
	defer f.Close()
	part := make([]byte, mib)
	reads := func(at int64) error {
		_, err := f.ReadAt(part, at)
		if err == nil && !bytes.Equal(part, content[at:at+mib]) {
			t.Errorf("at %d is what is not in the image", at)
		}
		return err
	}
	n.check(reads(20 * mib))

	r.stop()
	if reads(40*mib) == nil {
		t.Error("a part was read that nothing can have fetched")
	}
	r.start(t)
	n.check(reads(40 * mib))

	r.tamper(t, layer.Digest, 55*mib)
	if reads(57*mib) == nil {
		t.Error("a part was read that is not the image's")
	}
	n.check(reads(20 * mib))
}

// TestTheRestIsFetchedInTheBackground: the registry may go then.
func TestTheRestIsFetchedInTheBackground(t *testing.T) {
	n := newNode(t)
	r := newLazyRegistry(t)
	n.startStargz(config.Node{Registry: r.address, Fetch: true})
	raw := make([]byte, 16*mib)
	_, _ = rand.Read(raw) // it does not fail
	content := arranged(t, qcow2File(t, raw))
	ref, layer := r.push(t, content)
	n.pullLazily(ref)
	wait.Until(t, "all is fetched", func() bool { return r.served.Load() >= layer.Size })
	// The last bytes may be on their way to the snapshotter's disk.
	wait.Until(t, "all is kept", func() bool { return n.kept(layer) })
	r.stop()
	d := n.acquire("owner", ref, "")
	n.wantContent(d, d.Path, content)
}

// kept reports whether the snapshotter has all of a layer.
func (n *node) kept(layer v1.Descriptor) bool {
	n.t.Helper()
	mounts, err := filepath.Glob(filepath.Join(n.stargzRoot(), "snapshotter/snapshots/*/fs"))
	n.check(err)
	for _, m := range mounts {
		text, err := os.ReadFile(filepath.Join(m, ".stargz-snapshotter", layer.Digest.String()+".json"))
		if err != nil {
			continue
		}
		var state struct{ FetchedSize int64 }
		// The snapshotter cuts the file before it writes it again.
		return json.Unmarshal(text, &state) == nil && state.FetchedSize == layer.Size
	}
	return false
}

// pullLazily pulls an image as containerd's CRI plug-in does with a remote snapshotter.
func (n *node) pullLazily(ref string) {
	n.t.Helper()
	resolver := docker.NewResolver(docker.ResolverOptions{
		Hosts: docker.ConfigureDefaultRegistries(docker.WithPlainHTTP(docker.MatchLocalhost)),
	})
	_, err := n.client.Pull(n.ctx, ref, containerd.WithResolver(resolver), containerd.WithPullSnapshotter(config.Stargz),
		containerd.WithPullUnpack, containerd.WithImageHandlerWrapper(snapshotters.AppendInfoHandlerWrapper(ref)))
	n.check(err)
	n.t.Cleanup(func() { n.forget(ref) })
}

// stargzRoot is the snapshotter's folder.
func (n *node) stargzRoot() string { return filepath.Join(shared.dir, "stargz-"+n.t.Name()) }

// lazyRegistry is a registry that counts what it sends.
type lazyRegistry struct {
	dir, address string
	served       atomic.Int64
	server       *httptest.Server
}

func newLazyRegistry(t *testing.T) *lazyRegistry {
	t.Helper()
	r := &lazyRegistry{dir: t.TempDir(), address: "127.0.0.1:0"}
	r.start(t)
	t.Cleanup(r.stop)
	return r
}

func (r *lazyRegistry) start(t *testing.T) {
	t.Helper()
	h, err := registry.Handler(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	r.address = l.Addr().String()
	r.server = &httptest.Server{Listener: l, Config: &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			h.ServeHTTP(&counted{w, &r.served}, q)
		}),
	}}
	r.server.Start()
}

func (r *lazyRegistry) stop() {
	r.server.CloseClientConnections()
	r.server.Close()
}

// counted counts the bytes of a reply.
type counted struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return c.ResponseWriter.Write(p)
}

// lazyImage is a lazy image of a disk.
func lazyImage(t *testing.T, content []byte) v1.Image {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	disk, err := registrydisk.Check(path, maxDisk)
	if err != nil {
		t.Fatal(err)
	}
	img, err := disk.Image(t.Context(), registrydisk.Options{Architecture: "amd64", Lazy: true})
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// push makes a lazy image of a disk, and pushes it.
func (r *lazyRegistry) push(t *testing.T, content []byte) (ref string, layer v1.Descriptor) {
	t.Helper()
	img := lazyImage(t, content)
	ref = r.address + "/lazy:1"
	if _, err := testimages.Push(t.Context(), ref, img, testimages.PushOptions{}); err != nil {
		t.Fatal(err)
	}
	m, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	return ref, m.Layers[0]
}

// tamper changes some of a layer's bytes.
func (r *lazyRegistry) tamper(t *testing.T, h v1.Hash, at int64) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(r.dir, "blobs", h.Algorithm+"-"+h.Hex), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(bytes.Repeat([]byte{'x'}, 4*mib), at); err != nil {
		t.Fatal(err)
	}
}

// startStargz starts the snapshotter that the node's containerd knows, and has the Unpacker use it. It
// is in the test's own mount namespace, where the Unpacker mounts.
func (n *node) startStargz(c config.Node) {
	n.t.Helper()
	program, err := findProgram("containerd-stargz-grpc")
	n.check(err)
	text, err := config.Snapshotter(c)
	n.check(err)
	file, socket := filepath.Join(shared.dir, "stargz.toml"), filepath.Join(shared.dir, "stargz.sock")
	n.check(os.WriteFile(file, []byte(text), 0o600))
	var log strings.Builder
	cmd := exec.Command(program, "--config", file, "--root", n.stargzRoot(), "--address", socket)
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	n.check(cmd.Start())
	n.t.Cleanup(func() {
		n.check(cmd.Process.Signal(syscall.SIGTERM))
		if err := cmd.Wait(); err != nil || n.t.Failed() {
			n.t.Errorf("the snapshotter: %v\n%s", err, log.String())
		}
	})
	wait.Until(n.t, "the snapshotter listens", func() bool {
		c, err := net.Dial("unix", socket)
		return err == nil && c.Close() == nil
	})
	n.Unpacker = imageunpack.New(n.client, imageunpack.Options{
		Namespace: namespace, Snapshotter: config.Stargz, MountDir: n.mountDir, MaxDiskSize: maxDisk,
	})
}
