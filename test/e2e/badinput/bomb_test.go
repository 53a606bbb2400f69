package badinput

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/compression"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/imageunpack/registrydisk/layout"
	"github.com/nodevirt/nodevirt/shim/vmspec"
	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/images"
	"github.com/nodevirt/nodevirt/test/wait"
)

// bombCases are layers that inflate to more than the node has room for.
func bombCases() []badCase {
	bomb := func(name string, layer func() (v1.Layer, error)) badCase {
		return badCase{
			name: name, at: atPull, code: codes.Unknown, before: fillSnapshots,
			push: func(t *testing.T, s *suite) string {
				t.Helper()
				l, err := layer()
				assert.NilError(t, err)
				if size, err := l.Size(); err != nil || size > mebibyte {
					t.Fatalf("the bomb has %d bytes, %v", size, err)
				}
				img, err := mutate.AppendLayers(imageOf(t), l)
				assert.NilError(t, err)
				return s.push(t, strings.ReplaceAll(name, " ", "-"), img)
			},
		}
	}
	packed := func(with compression.Compression) func() (v1.Layer, error) {
		return func() (v1.Layer, error) {
			return tarball.LayerFromOpener(zeros, tarball.WithCompression(with))
		}
	}
	return []badCase{
		bomb("gzip layer", packed(compression.GZip)),
		bomb("zstd layer", packed(compression.ZStd)),
		bomb("sparse file", plain(sparseFile)),
		bomb("old sparse file", plain(oldSparseFile)),
	}
}

// plain is a layer that is not compressed.
func plain(content func() []byte) func() (v1.Layer, error) {
	return func() (v1.Layer, error) {
		return layout.Plain(func() io.ReadCloser { return io.NopCloser(bytes.NewReader(content())) })
	}
}

// inflated is how large the bombs get, in bytes, and more than fillSnapshots leaves.
const inflated = 64 * mebibyte

// zeros is a layer's archive with a large disk.
func zeros() (io.ReadCloser, error) {
	return images.Archive([]images.File{{Name: "disk", Data: make([]byte, inflated)}}), nil
}

// sparseFile is an archive of some blocks with a file of holes, as PAX writes it; see GNU tar's
// manual, "PAX Format, Version 0.1". Package archive/tar only reads it.
func sparseFile() []byte {
	var records strings.Builder
	for _, r := range []string{
		fmt.Sprintf("GNU.sparse.size=%d\n", inflated), "GNU.sparse.numblocks=1\n", fmt.Sprintf("GNU.sparse.map=%d,0\n", inflated),
	} {
		fmt.Fprintf(&records, "%d %s", len(r)+3, r) // its own two digits and a space
	}
	extended := make([]byte, 512)
	copy(extended, records.String())
	b := append(tarHeader('x', records.Len(), nil), extended...)
	b = append(b, tarHeader('0', 0, nil)...)
	return append(b, make([]byte, 1024)...)
}

// oldSparseFile is the same as "Old GNU Format".
func oldSparseFile() []byte {
	b := tarHeader('S', 0, func(h []byte) {
		copy(h[386:], fmt.Sprintf("%011o\x00%011o\x00", inflated, 0)) // a piece of no length, at the end
		copy(h[483:], fmt.Sprintf("%011o\x00", inflated))
	})
	return append(b, make([]byte, 1024)...)
}

// tarHeader is the header of a file named disk, changed by a function.
func tarHeader(kind byte, size int, change func(h []byte)) []byte {
	h := make([]byte, 512)
	copy(h, "disk")
	copy(h[100:], "0000644\x000000000\x000000000\x00") // mode, user, group
	copy(h[124:], fmt.Sprintf("%011o\x0000000000000\x00", size))
	copy(h[148:], "        ") // the checksum's place
	h[156] = kind
	copy(h[257:], "ustar\x0000")
	if change != nil {
		change(h)
	}
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return h
}

// fillSnapshots leaves little room where containerd unpacks images.
func fillSnapshots(t *testing.T, s *suite, _ *pod) (undo func()) {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(s.n.Dir(), "containerd/*overlayfs/snapshots"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("containerd's snapshots: %q, %v", dirs, err)
	}
	if _, err := s.n.Output(t.Context(), "mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", dirs[0]); err != nil {
		t.Fatal(err)
	}
	return func() { t.Helper(); s.unmount(t, dirs[0]) }
}

// unmount waits for those who are about to leave a folder: containerd cleans up beside the answer of a
// pull that failed.
func (s *suite) unmount(t *testing.T, dir string) {
	t.Helper()
	wait.Until(t, "nobody uses "+dir, func() bool {
		_, err := s.n.Output(t.Context(), "umount", dir)
		if err != nil && !strings.Contains(err.Error(), "busy") {
			t.Fatal(err)
		}
		return err == nil
	})
}

// testCompressedClusters: a qcow2 file of some MiB, whose guest sees half a terabyte of one compressed
// cluster, is refused in each mode, since a conversion of it would take hours.
func (s *suite) testCompressedClusters(t *testing.T) {
	bomb, err := guest.CompressedBomb()
	assert.NilError(t, err)
	ref := s.push(t, "compressed-clusters", imageOf(t, []images.File{{Name: "disk", Data: bomb}}))
	s.pull(t, ref)
	for _, mode := range []vmspec.Mode{vmspec.ModeFile, vmspec.ModeRaw} {
		p := s.run(t, "pod", annotated(vmspec.AnnotationDiskMode, string(mode)))
		before := s.census(t)
		_, err = s.create(t, p, newContainer(ref, nil))
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "takes as long to read as 512Gi") {
			t.Errorf("mode %s: %v", mode, err)
		}
		s.wantNothingSince(t, before)
		s.remove(t, p)
	}
}
