package registrydisk

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/containerd/stargz-snapshotter/estargz"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
)

// lazyChunk is how many bytes of a file a chunk of a lazy layer has, each of which is compressed and
// verified by itself. The stargz snapshotter fetches 2 MiB for a chunk that it does not have, so
// that smaller chunks save no traffic; it then inflates and verifies the chunk before the guest
// gets its first byte, which takes milliseconds with 1 MiB. Each chunk is an entry of the table of
// contents, which is read first: some 0.7 MiB for a disk of 10 GiB.
const lazyChunk = 1 << 20

// lazyLevel is the quickest compression. It leaves 44 % of Debian's cloud image; the next better
// ones leave 40 %, and take more than three times as long to build.
const lazyLevel = gzip.BestSpeed

// Lazy returns an archive as a layer in the format eStargz, with the annotation that a remote
// snapshotter needs to verify it. To others it is a gzip layer. It calls open each time that the
// layer is read, and once for the digest.
func Lazy(open func() io.ReadCloser) (mutate.Addendum, error) {
	l := &lazy{open: open}
	hash := sha256.New()
	size := new(counter)
	toc, err := l.write(io.MultiWriter(hash, size))
	if err != nil {
		return mutate.Addendum{}, fmt.Errorf("make a lazy layer: %w", err)
	}
	l.hash = v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(hash.Sum(nil))}
	l.size = int64(*size)
	return mutate.Addendum{
		Layer:       l,
		Annotations: map[string]string{estargz.TOCJSONDigestAnnotation: toc.String()},
	}, nil
}

// lazy is a layer of compressed chunks with a table of contents. It is built each time that it is
// read: an image is read once after its digests are known, and would take as much space as the disk.
type lazy struct {
	open         func() io.ReadCloser
	hash, diffID v1.Hash
	size         int64
}

func (l *lazy) Digest() (v1.Hash, error)            { return l.hash, nil }
func (l *lazy) DiffID() (v1.Hash, error)            { return l.diffID, nil }
func (l *lazy) Size() (int64, error)                { return l.size, nil }
func (l *lazy) MediaType() (types.MediaType, error) { return types.OCILayer, nil }

// write builds the layer, and returns the digest of its table of contents.
func (l *lazy) write(w io.Writer) (digest.Digest, error) {
	archive := l.open()
	z := estargz.NewWriterLevel(w, lazyLevel)
	z.ChunkSize = lazyChunk
	err := z.AppendTar(archive)
	if err := errors.Join(err, archive.Close()); err != nil {
		return "", err
	}
	toc, err := z.Close()
	if err != nil {
		return "", err
	}
	if l.diffID == (v1.Hash{}) {
		l.diffID, err = v1.NewHash(z.DiffID())
	}
	return toc, err
}

// Compressed returns a reader of the layer, which is written while it is read.
func (l *lazy) Compressed() (io.ReadCloser, error) {
	r, w := io.Pipe()
	go func() {
		_, err := l.write(w)
		_ = w.CloseWithError(err) // the error reaches the reader
	}()
	return r, nil
}

// Uncompressed includes the table of contents, as the DiffID does.
func (l *lazy) Uncompressed() (io.ReadCloser, error) {
	r, err := l.Compressed()
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("inflate a layer: %w", err), r.Close())
	}
	return inflated{z, r}, nil
}

// inflated is a reader that closes what it reads.
type inflated struct {
	*gzip.Reader
	from io.Closer
}

func (i inflated) Close() error { return errors.Join(i.Reader.Close(), i.from.Close()) }

// counter counts the bytes that are written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
