package lazy

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/imageunpack/registrydisk"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/node"
)

const mebibyte = 1 << 20

// rest is how many bytes the disk has beside a guest's, which its guest does not read by itself.
const rest = 128 * mebibyte

// disk is a lazy registry disk with a guest, in a node's registry.
type disk struct {
	t      *testing.T
	n      *node.Node
	cri    runtimeapi.RuntimeServiceClient
	images runtimeapi.ImageServiceClient

	raw    string // path of the same disk
	size   int64  // of it, in bytes
	ref    string
	digest string // of the layer
	blob   int64  // size of the layer, in bytes
}

func newDisk(t *testing.T, n *node.Node) *disk {
	t.Helper()
	conn, err := node.DialCRI(n.ShimSocket())
	assert.NilError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	d := &disk{
		t: t, n: n, cri: runtimeapi.NewRuntimeServiceClient(conn), images: runtimeapi.NewImageServiceClient(conn),
		raw: filepath.Join(t.TempDir(), "disk.raw"),
	}
	tiny, err := guest.TinyWithAgent(t.Context(), n.GuestOptions())
	assert.NilError(t, err)
	d.convert("qcow2", tiny, "raw", d.raw)
	f, err := os.OpenFile(d.raw, os.O_WRONLY|os.O_APPEND, 0)
	assert.NilError(t, err)
	_, err = io.CopyN(f, rand.Reader, rest)
	assert.NilError(t, err)
	d.size, err = f.Seek(0, io.SeekEnd)
	assert.NilError(t, err)
	assert.NilError(t, f.Close())
	qcow2 := filepath.Join(t.TempDir(), "disk.qcow2")
	d.convert("raw", d.raw, "qcow2", qcow2)
	d.push(qcow2)
	return d
}

func (d *disk) convert(fromFormat, from, toFormat, to string) {
	d.t.Helper()
	out, err := exec.CommandContext(d.t.Context(), "qemu-img", "convert", "-f", fromFormat, "-O", toFormat, from, to).CombinedOutput()
	if err != nil {
		d.t.Fatalf("qemu-img convert: %v: %s", err, out)
	}
}

// push makes the image as nodevirt image build --lazy does.
func (d *disk) push(path string) {
	d.t.Helper()
	checked, err := registrydisk.Check(path, 1<<40)
	assert.NilError(d.t, err)
	img, err := checked.Image(d.t.Context(), registrydisk.Options{Architecture: "amd64", Lazy: true})
	assert.NilError(d.t, err)
	d.ref, err = d.n.Push(d.t.Context(), "lazy:1", img)
	assert.NilError(d.t, err)
	m, err := img.Manifest()
	assert.NilError(d.t, err)
	d.digest, d.blob = m.Layers[0].Digest.String(), m.Layers[0].Size
}

func (d *disk) pull() {
	d.t.Helper()
	_, err := d.images.PullImage(d.t.Context(), &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: d.ref}})
	assert.NilError(d.t, err)
}

// fetched is how many bytes of the layer the node has, as the snapshotter says.
func (d *disk) fetched() int64 {
	d.t.Helper()
	n, err := node.Fetched(d.n, d.digest)
	assert.NilError(d.t, err)
	return n
}

// sum is the digest of a mebibyte of the disk, at a percentage of the rest.
func (d *disk) sum(percent int64) string {
	d.t.Helper()
	f, err := os.Open(d.raw)
	assert.NilError(d.t, err)
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, io.NewSectionReader(f, d.block(percent)*mebibyte, mebibyte))
	assert.NilError(d.t, err)
	return hex.EncodeToString(sum.Sum(nil))
}

// block is the mebibyte of the disk at a percentage of the rest, which its guest does not read by itself.
func (d *disk) block(percent int64) int64 { return (d.size - rest + rest*percent/100) / mebibyte }
