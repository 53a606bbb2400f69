package imageunpack

import "io"

// Check tells a disk's format and its virtual size in bytes, and refuses what a machine can't be
// given, as [Unpacker.Acquire] does. Size is the file's, maxSize the largest that a disk may have,
// both in bytes. Errors match [ErrUnusable], or come from r.
func Check(r io.ReaderAt, size, maxSize int64) (Format, int64, error) {
	f, err := inspect(r, size, maxSize)
	return f.format, f.size, err
}
