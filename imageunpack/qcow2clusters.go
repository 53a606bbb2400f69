package imageunpack

import "fmt"

// maxClusters is the maximum number of a file's clusters. It limits the memory of a check to 8 MiB, one
// bit for each cluster, most of which fits into a processor's cache. It allows a file of 4 TiB with
// QEMU's default clusters of 64 KiB.
const maxClusters = 1 << 26

// reservations has a bit for each cluster of a file, which is set if the cluster holds a table. In a
// sound file no two tables share a cluster, and none holds data. In a hostile file a table can name
// itself, so that a few clusters look like a large disk, and a guest that reads its disk reads tables.
type reservations struct {
	bits        []uint64
	clusterBits uint32
}

// newReservations returns none for a file of size bytes in clusters of 1<<clusterBits bytes.
func newReservations(size uint64, clusterBits uint32) (reservations, error) {
	clusters := (size-1)>>clusterBits + 1
	if clusters > maxClusters {
		return reservations{}, fmt.Errorf("%w: %d clusters of %d bytes, but at most %d are supported: %s",
			ErrUnsupported, clusters, 1<<clusterBits, maxClusters, largerClusters)
	}
	return reservations{make([]uint64, (clusters+63)/64), clusterBits}, nil
}

// reserve reserves the clusters of a table, which is within the file. It returns an error if another
// table has one of them.
func (r reservations) reserve(table string, offset, length uint64) error {
	if err := r.refuse(table, offset, length); err != nil {
		return err
	}
	first, last := r.span(offset, length)
	for i := first; i <= last; i++ {
		r.bits[i/64] |= 1 << (i % 64)
	}
	return nil
}

// refuse returns an error if a range, which is within the file, touches a table's cluster.
func (r reservations) refuse(what string, offset, length uint64) error {
	first, last := r.span(offset, length)
	for i := first; i <= last; i++ {
		if r.bits[i/64]&(1<<(i%64)) != 0 {
			return fmt.Errorf("%w: %s at %#x, where the header or a table is: %s", ErrCorrupt, what, offset, repair)
		}
	}
	return nil
}

// span returns the first and the last cluster of length bytes, at least one, from offset on.
func (r reservations) span(offset, length uint64) (first, last uint64) {
	return offset >> r.clusterBits, (offset + max(length, 1) - 1) >> r.clusterBits
}
