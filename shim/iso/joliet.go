package iso

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// The numbers of ECMA-119: fields of a volume descriptor, of a record of a folder, and
// of an entry of the path table, which has all folders.
const (
	block = 2048

	jolietDescriptor = 17 // the block
	descriptorTable  = 132
	descriptorL      = 140
	descriptorRoot   = 156

	recordExtent = 2
	recordSize   = 10
	recordFlags  = 25
	recordName   = 32
	flagFolder   = 2

	entryExtent = 2
	entryParent = 6
	entryName   = 8
)

var errJoliet = errors.New("the library wrote no Joliet tree")

// jolietFolder is an entry of the path table. Folders are numbered from 1.
type jolietFolder struct {
	extent uint32
	parent int
	name   string
	size   uint32
}

// fixJoliet has the records of Joliet folders point to Joliet folders: the library
// has them point to those of Rock Ridge. It rounds sizes up to blocks, which the
// library does not do.
func fixJoliet(image *os.File) error {
	descriptor := make([]byte, block)
	if _, err := image.ReadAt(descriptor, jolietDescriptor*block); err != nil {
		return err
	}
	folders, err := readJoliet(image, descriptor)
	if err != nil {
		return err
	}
	for i, f := range folders {
		content := make([]byte, f.size)
		at := int64(f.extent) * block
		if _, err := image.ReadAt(content, at); err != nil {
			return err
		}
		if err := fixFolder(content, i+1, folders); err != nil {
			return err
		}
		if _, err := image.WriteAt(content, at); err != nil {
			return err
		}
	}
	setExtent(descriptor[descriptorRoot:], folders[0])
	_, err = image.WriteAt(descriptor, jolietDescriptor*block)
	return err
}

// readJoliet returns the folders in the order of their numbers, the root first.
func readJoliet(image *os.File, descriptor []byte) ([]jolietFolder, error) {
	table := make([]byte, binary.LittleEndian.Uint32(descriptor[descriptorTable:]))
	if _, err := image.ReadAt(table, int64(binary.LittleEndian.Uint32(descriptor[descriptorL:]))*block); err != nil {
		return nil, err
	}
	var folders []jolietFolder
	for len(table) > entryName {
		length := int(table[0])
		end := entryName + length + length%2
		if end > len(table) {
			return nil, errJoliet
		}
		f := jolietFolder{
			extent: binary.LittleEndian.Uint32(table[entryExtent:]),
			parent: int(binary.LittleEndian.Uint16(table[entryParent:])),
			name:   string(table[entryName : entryName+length]),
		}
		var self [recordName]byte
		if _, err := image.ReadAt(self[:], int64(f.extent)*block); err != nil {
			return nil, err
		}
		f.size = (binary.LittleEndian.Uint32(self[recordSize:]) + block - 1) / block * block
		folders = append(folders, f)
		table = table[end:]
	}
	if len(folders) == 0 {
		return nil, errJoliet
	}
	return folders, nil
}

// fixFolder fixes the records of the folder with a number. The first two are those of
// the folder and of its parent.
func fixFolder(content []byte, number int, folders []jolietFolder) error {
	index := 0
	for ; len(content) > 0; content = content[block:] {
		for records := content[:block]; len(records) > recordName && records[0] != 0; index++ { // no record crosses a block
			record := records[:records[0]]
			records = records[len(record):]
			name := string(record[recordName+1 : recordName+1+int(record[recordName])])
			of := number
			switch {
			case index == 1:
				of = folders[number-1].parent
			case index > 1 && record[recordFlags]&flagFolder == 0:
				continue
			case index > 1:
				of = child(folders, number, name)
			}
			if of == 0 {
				return fmt.Errorf("%w: %q is in no table", errJoliet, name)
			}
			setExtent(record, folders[of-1])
		}
	}
	return nil
}

// child returns the number of a folder; 0 for none.
func child(folders []jolietFolder, parent int, name string) int {
	for i, f := range folders {
		if i > 0 && f.parent == parent && f.name == name {
			return i + 1
		}
	}
	return 0
}

// setExtent sets a record's numbers, which are in both orders of bytes.
func setExtent(record []byte, f jolietFolder) {
	for at, n := range map[int]uint32{recordExtent: f.extent, recordSize: f.size} {
		binary.LittleEndian.PutUint32(record[at:], n)
		binary.BigEndian.PutUint32(record[at+4:], n)
	}
}
