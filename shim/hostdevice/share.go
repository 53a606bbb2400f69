package hostdevice

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// SEV is the node of AMD's secure processor, which the QEMU of each VM with SEV opens.
const SEV = "/dev/sev"

// Share lets a VM's user open a node that several VMs use, by an entry in its access control list.
func (n Node) Share(node string, uid uint32) error {
	if err := n.changeList(node, uid, true); err != nil {
		return fmt.Errorf("let QEMU open %s: %w", node, err)
	}
	return nil
}

// Unshare removes the entry. A node or an entry that is missing is no error.
func (n Node) Unshare(node string, uid uint32) error {
	if err := n.changeList(node, uid, false); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("close %s to a VM: %w", node, err)
	}
	return nil
}

// listAttribute is the extended attribute with a file's access control list, in the kernel's format: a
// version, then entries in the order of their tags and IDs (linux/posix_acl_xattr.h).
const (
	listAttribute = "system.posix_acl_access"
	listVersion   = 2
	maxList       = 64 << 10
)

// The tags of entries.
const (
	tagOwner uint16 = 0x01
	tagUser  uint16 = 0x02
	tagGroup uint16 = 0x04
	tagMask  uint16 = 0x10
	tagOther uint16 = 0x20
)

const (
	readWrite = 6
	noID      = ^uint32(0)
)

// entry is one of a list.
type entry struct {
	Tag, Rights uint16
	ID          uint32
}

// changeList changes the entry of one user. The lock of the node's folder keeps the list from other
// starts meanwhile.
func (n Node) changeList(node string, uid uint32, opens bool) error {
	path := filepath.Join(n.Root, node)
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer folder.Close() // and unlock it
	if err := unix.Flock(int(folder.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return errors.New("it is a link")
	}
	list, err := readList(path, info.Mode().Perm())
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(e entry) bool { return e.Tag == tagUser && e.ID == uid })
	if opens {
		list = append(list, entry{tagUser, readWrite, uid})
		mask := slices.IndexFunc(list, func(e entry) bool { return e.Tag == tagMask })
		if mask < 0 {
			list, mask = append(list, entry{Tag: tagMask, ID: noID}), len(list)
		}
		list[mask].Rights |= readWrite
	}
	slices.SortFunc(list, func(a, b entry) int { return cmp.Or(cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.ID, b.ID)) })
	var text bytes.Buffer
	for _, part := range []any{uint32(listVersion), list} {
		if err := binary.Write(&text, binary.LittleEndian, part); err != nil {
			return err
		}
	}
	return unix.Lsetxattr(path, listAttribute, text.Bytes(), 0)
}

// readList returns a file's list; its mode has the one of a file without any.
func readList(path string, mode fs.FileMode) ([]entry, error) {
	text := make([]byte, maxList)
	size, err := unix.Lgetxattr(path, listAttribute, text)
	if errors.Is(err, unix.ENODATA) {
		return []entry{
			{tagOwner, uint16(mode >> 6 & 7), noID}, {tagGroup, uint16(mode >> 3 & 7), noID}, {tagOther, uint16(mode & 7), noID},
		}, nil
	}
	if err != nil {
		return nil, err
	}
	var version uint32
	from := bytes.NewReader(text[:size])
	if err := binary.Read(from, binary.LittleEndian, &version); err != nil || version != listVersion {
		return nil, fmt.Errorf("its access control list has version %d, not %d", version, listVersion)
	}
	list := make([]entry, from.Len()/binary.Size(entry{}))
	if err := binary.Read(from, binary.LittleEndian, list); err != nil {
		return nil, err
	}
	return list, nil
}
