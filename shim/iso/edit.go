package iso

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"unicode/utf16"
)

// Edit changes the content of a file in an image that [Write] created, in the place where
// the file is. What change returns must be as long as the content that it gets. A process
// that has the image open reads the new content.
func Edit(image, name string, change func(content []byte) ([]byte, error)) (err error) {
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	content, at, err := find(f, name)
	if err != nil {
		return fmt.Errorf("read %s of image %s: %w", name, image, err)
	}
	changed, err := change(content)
	if err == nil && len(changed) != len(content) {
		err = fmt.Errorf("%d bytes do not take the place of %d", len(changed), len(content))
	}
	if err == nil {
		_, err = f.WriteAt(changed, at)
	}
	if err != nil {
		return fmt.Errorf("change %s of image %s: %w", name, image, err)
	}
	return nil
}

// find returns a file's content, and where in the image it is.
func find(image *os.File, name string) (content []byte, at int64, err error) {
	descriptor := make([]byte, block)
	if _, err := image.ReadAt(descriptor, jolietDescriptor*block); err != nil {
		return nil, 0, err
	}
	folders, err := readJoliet(image, descriptor)
	if err != nil {
		return nil, 0, err
	}
	number := 1
	if dir := path.Dir(name); dir != "." {
		for one := range strings.SplitSeq(dir, "/") {
			if number = child(folders, number, ucs2(one)); number == 0 {
				return nil, 0, fs.ErrNotExist
			}
		}
	}
	folder := folders[number-1]
	records, err := readExtent(image, folder.extent, folder.size)
	if err != nil {
		return nil, 0, err
	}
	record := fileRecord(records, ucs2(path.Base(name)))
	if record == nil {
		return nil, 0, fs.ErrNotExist
	}
	extent := binary.LittleEndian.Uint32(record[recordExtent:])
	content, err = readExtent(image, extent, binary.LittleEndian.Uint32(record[recordSize:]))
	return content, int64(extent) * block, err
}

func readExtent(image *os.File, extent, size uint32) ([]byte, error) {
	if size > MaxBytes {
		return nil, errJoliet
	}
	content := make([]byte, size)
	_, err := image.ReadAt(content, int64(extent)*block)
	return content, err
}

// fileRecord returns the record of a file in a folder's content; nil without such a file.
func fileRecord(content []byte, name string) []byte {
	for ; len(content) >= block; content = content[block:] {
		for records := content[:block]; len(records) > recordName && records[0] != 0; { // no record crosses a block
			end := min(int(records[0]), len(records))
			record := records[:end]
			records = records[end:]
			from := recordName + 1
			if end <= from || record[recordFlags]&flagFolder != 0 {
				continue
			}
			if to := from + int(record[recordName]); to <= end && string(record[from:to]) == name {
				return record
			}
		}
	}
	return nil
}

// ucs2 returns a name as Joliet has it.
func ucs2(name string) string {
	var b []byte
	for _, unit := range utf16.Encode([]rune(name)) {
		b = binary.BigEndian.AppendUint16(b, unit)
	}
	return string(b)
}
