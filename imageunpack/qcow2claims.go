package imageunpack

import "fmt"

// maxClusters bounds the clusters of a file, and so the memory that a check takes: a bit for each
// makes 8 MiB, of which a processor has the most at hand. It is a file of 4 TiB in QEMU's usual
// clusters of 64 KiB.
const maxClusters = 1 << 26

// claims are the clusters of a file that hold its tables, a bit for each. In a sound file no two
// tables share a cluster, and no data is in one. In another one a table can name itself, so that a
// few clusters seem to be a whole disk, and a guest that reads its disk reads tables.
type claims struct {
	bits        []uint64
	clusterBits uint32
}

// newClaims is for a file of size bytes in clusters of 1<<clusterBits bytes.
func newClaims(size uint64, clusterBits uint32) (claims, error) {
	clusters := (size-1)>>clusterBits + 1
	if clusters > maxClusters {
		return claims{}, fmt.Errorf("%w: %d clusters of %d bytes, and no more than %d are looked at: %s",
			ErrUnsupported, clusters, 1<<clusterBits, maxClusters, largerClusters)
	}
	return claims{make([]uint64, (clusters+63)/64), clusterBits}, nil
}

// take marks what a table takes up, which is within the file. It refuses what another one has.
func (c claims) take(table string, offset, length uint64) error {
	if err := c.refuse(table, offset, length); err != nil {
		return err
	}
	first, last := c.span(offset, length)
	for i := first; i <= last; i++ {
		c.bits[i/64] |= 1 << (i % 64)
	}
	return nil
}

// refuse refuses what is in a cluster that a table has. It is within the file.
func (c claims) refuse(what string, offset, length uint64) error {
	first, last := c.span(offset, length)
	for i := first; i <= last; i++ {
		if c.bits[i/64]&(1<<(i%64)) != 0 {
			return fmt.Errorf("%w: %s at %#x, where the header or a table is: %s", ErrCorrupt, what, offset, repair)
		}
	}
	return nil
}

// span is the first and the last cluster of length bytes, one at the least, from offset on.
func (c claims) span(offset, length uint64) (first, last uint64) {
	return offset >> c.clusterBits, (offset + max(length, 1) - 1) >> c.clusterBits
}
