package guest

import (
	"fmt"
	"io"
	"slices"
)

// entry is a file of an initial RAM disk. All belong to root.
type entry struct {
	name string // without a leading slash
	mode uint32 // type and permissions, as in struct stat
	data []byte // content, or the target of a link
}

// Types of entries; see inode(7).
const (
	typeFile = 0o100000
	typeDir  = 0o040000
	typeLink = 0o120000
)

// writeCPIO writes entries in the "newc" format, as in the kernel's
// Documentation/driver-api/early-userspace/buffer-format.rst. Times are zero and inode numbers
// count up, so equal entries give equal bytes. A folder must stand before what is in it.
func writeCPIO(w io.Writer, entries []entry) error {
	trailer := entry{name: "TRAILER!!!"}
	for i, e := range append(slices.Clip(entries), trailer) {
		if err := writeEntry(w, i+1, e); err != nil {
			return fmt.Errorf("write %s: %w", e.name, err)
		}
	}
	return nil
}

func writeEntry(w io.Writer, inode int, e entry) error {
	name := e.name + "\x00"
	head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s",
		inode, e.mode, 0, 0, 1, 0, len(e.data), 0, 0, 0, 0, len(name), 0, name)
	for _, part := range []string{head + pad(len(head)), string(e.data) + pad(len(e.data))} {
		if _, err := io.WriteString(w, part); err != nil {
			return err
		}
	}
	return nil
}

// pad fills up to a multiple of four bytes.
func pad(n int) string { return "\x00\x00\x00"[:(4-n%4)%4] }
