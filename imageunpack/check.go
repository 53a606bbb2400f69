package imageunpack

import "io"

// Check returns a disk's format and its virtual size in bytes. It makes the same checks as
// [Unpacker.Acquire]. Size is the file's size and maxSize the maximum of a disk, both in bytes. Errors
// match [ErrUnusable], or come from r.
func Check(r io.ReaderAt, size, maxSize int64) (Format, int64, error) {
	f, err := inspect(r, size, maxSize)
	return f.format, f.size, err
}
