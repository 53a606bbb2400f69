package imageunpack_test

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/test/guest"
)

// repeated is a sound qcow2 file in clusters of 512 bytes, whose guest sees size bytes: each of its L2
// entries names the same compressed cluster. Most of the file are its L2 tables, which a layer's
// compression makes a thousandth of their size.
func repeated(t *testing.T, size uint64) []byte {
	t.Helper()
	const bits, cluster = 9, 512
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(bytes.Repeat([]byte{7}, cluster)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	be := binary.BigEndian
	tables := size / (cluster / 8 * cluster)
	l1 := (tables*8 + cluster - 1) / cluster
	first := 1 + l1 + 1 // the first L2 table, behind the header, the L1 table and the refcount table
	data := first + tables
	b := make([]byte, (data+1)*cluster)
	copy(b, "QFI\xfb")
	be.PutUint32(b[4:], 3)
	be.PutUint32(b[20:], bits)
	be.PutUint64(b[24:], size)
	be.PutUint32(b[36:], uint32(tables))
	be.PutUint64(b[40:], cluster)
	be.PutUint64(b[48:], (1+l1)*cluster)
	be.PutUint32(b[56:], 1)
	be.PutUint32(b[96:], 4)
	be.PutUint32(b[100:], 104)
	for i := range tables {
		table := (first + i) * cluster
		be.PutUint64(b[cluster+8*i:], 1<<63|table)
		for j := range uint64(cluster / 8) {
			be.PutUint64(b[table+8*j:], 1<<62|data*cluster)
		}
	}
	copy(b[data*cluster:], packed.Bytes())
	return b
}

// TestWork: a file that names the same data again and again is refused, and others are not.
func TestWork(t *testing.T) {
	bomb, err := guest.CompressedBomb()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file    []byte
		refused bool
	}{
		"3 GiB, 512 bytes a cluster":    {repeated(t, 3<<30), true},
		"64 MiB, 512 bytes a cluster":   {repeated(t, 64<<20), false},
		"512 GiB, 2 MiB a cluster":      {bomb, true},
		"as long as a file may be read": {worstFile(16<<30 - 4096), false},
		"longer":                        {worstFile(32 << 30), true},
	} {
		_, _, err := imageunpack.Inspect(bytes.NewReader(c.file), int64(len(c.file)), 1<<50)
		if refused := errors.Is(err, imageunpack.ErrUnsupported); refused != c.refused || !refused && err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// worstFile is a file of some MiB whose guest sees size bytes, all of them the same cluster without
// compression.
func worstFile(size uint64) []byte {
	const bits, cluster = 21, 1 << 21
	be := binary.BigEndian
	b := make([]byte, 5*cluster)
	copy(b, "QFI\xfb")
	be.PutUint32(b[4:], 3)
	be.PutUint32(b[20:], bits)
	be.PutUint64(b[24:], size)
	be.PutUint32(b[36:], 1)
	be.PutUint64(b[40:], 1*cluster)
	be.PutUint64(b[48:], 2*cluster)
	be.PutUint32(b[56:], 1)
	be.PutUint32(b[96:], 4)
	be.PutUint32(b[100:], 104)
	be.PutUint64(b[1*cluster:], 1<<63|3*cluster)
	for i := range uint64(cluster / 8) {
		be.PutUint64(b[3*cluster+8*i:], 1<<63|4*cluster)
	}
	return b
}
