package qcow2

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
)

const (
	// copied says in an entry of a table that nothing else refers to its cluster.
	copied = 1 << 63
	// countsPerBlock is how many clusters a block of reference counts covers.
	countsPerBlock = Cluster / 2
	// entries is the length of an L2 table.
	entries = Cluster / 8
)

// plan is where the parts of a file are. Each follows the one before:
//
//	header │ table of reference counts │ their blocks │ L1 table │ L2 tables │ data
type plan struct {
	// l1Entries is the length of the L1 table; the others are numbers of clusters.
	l1Entries                              int64
	refTable, refBlocks, l1Table, l2Tables int64
	// clusters is the length of the file.
	clusters int64
}

// lay returns the plan of a disk's file.
func (d *Disk) lay() plan {
	p := plan{l1Entries: (d.size + L2Covers - 1) / L2Covers}
	p.l1Table = (p.l1Entries*8 + Cluster - 1) / Cluster
	for i := range p.l1Entries {
		if d.hasTable(i) {
			p.l2Tables++
		}
	}
	for { // counts count their own clusters, too
		p.clusters = 1 + p.refTable + p.refBlocks + p.l1Table + p.l2Tables + d.count
		blocks := (p.clusters + countsPerBlock - 1) / countsPerBlock
		table := (blocks*8 + Cluster - 1) / Cluster
		if blocks == p.refBlocks && table == p.refTable {
			return p
		}
		p.refBlocks, p.refTable = blocks, table
	}
}

// hasTable reports whether an L1 entry refers to a table, which has some data.
func (d *Disk) hasTable(l1 int64) bool {
	const width = entries / 8
	from := min(l1*width, int64(len(d.has)))
	for _, b := range d.has[from:min(from+width, int64(len(d.has)))] {
		if b != 0 {
			return true
		}
	}
	return false
}

// Write writes the qcow2 file. The same disk results in the same bytes.
func (d *Disk) Write(ctx context.Context, to io.Writer) error {
	w := bufio.NewWriterSize(to, 4*Cluster)
	if err := d.write(ctx, w); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write disk %s as qcow2: %w", d.raw.Name(), err)
	}
	return nil
}

func (d *Disk) write(ctx context.Context, w *bufio.Writer) error {
	refBlocks := 1 + d.refTable
	l1Table := refBlocks + d.refBlocks
	l2Tables := l1Table + d.l1Table
	header := Header{
		Size: d.size, L1Entries: d.l1Entries, L1Offset: l1Table * Cluster,
		RefTableOffset: Cluster, RefTableClusters: d.refTable,
	}.Bytes()
	t := &tables{w: w}
	t.bytes(header)
	t.pad()
	for i := range d.refBlocks {
		t.entry(uint64(refBlocks+i) * Cluster)
	}
	t.pad()
	for range d.clusters {
		t.count()
	}
	t.pad()
	next := uint64(l2Tables) * Cluster
	for i := range d.l1Entries {
		t.entryIf(d.hasTable(i), &next)
	}
	t.pad()
	// next is now where the data begins.
	for i := range d.l1Entries {
		if !d.hasTable(i) {
			continue
		}
		for j := range int64(entries) {
			t.entryIf(d.present(i*entries+j), &next)
		}
	}
	if t.err != nil {
		return fmt.Errorf("write disk %s as qcow2: %w", d.raw.Name(), t.err)
	}
	return d.data(ctx, w)
}

// data writes the clusters with data.
func (d *Disk) data(ctx context.Context, w io.Writer) error {
	buffer := make([]byte, Cluster)
	for i := range int64(len(d.has)) * 8 {
		if !d.present(i) {
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := d.read(buffer, i); err != nil {
			return err
		}
		if _, err := w.Write(buffer); err != nil {
			return fmt.Errorf("write disk %s as qcow2: %w", d.raw.Name(), err)
		}
	}
	return nil
}

// tables writes tables, each in its own clusters.
type tables struct {
	w *bufio.Writer
	// written is the number of bytes so far.
	written int64
	scratch [8]byte
	err     error
}

func (t *tables) bytes(b []byte) {
	if t.err == nil {
		_, t.err = t.w.Write(b)
		t.written += int64(len(b))
	}
}

func (t *tables) entry(v uint64) {
	t.bytes(binary.BigEndian.AppendUint64(t.scratch[:0], v))
}

// count writes the reference count 1.
func (t *tables) count() { t.bytes(append(t.scratch[:0], 0, 1)) }

// entryIf writes an entry that refers to the next cluster, or to none.
func (t *tables) entryIf(present bool, next *uint64) {
	if !present {
		t.entry(0)
		return
	}
	t.entry(*next | copied)
	*next += Cluster
}

// pad fills the cluster with zeros.
func (t *tables) pad() {
	if rest := t.written % Cluster; rest > 0 && t.err == nil {
		_, t.err = t.w.Write(make([]byte, Cluster-rest))
		t.written += Cluster - rest
	}
}
